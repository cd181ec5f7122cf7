package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// requestTimeout bounds one request to the database.
const requestTimeout = 2 * time.Second

// databaseClient speaks the protocol of shop-database, with one connection per request.
type databaseClient struct {
	address string
}

func (c *databaseClient) add(ctx context.Context, list, text string) error {
	_, err := c.request(ctx, "ADD "+list+" "+strconv.Quote(text))
	return err
}

func (c *databaseClient) all(ctx context.Context, list string) ([]string, error) {
	answer, err := c.request(ctx, "ALL "+list)
	if err != nil {
		return nil, err
	}
	var texts []string
	for answer = strings.TrimSpace(answer); answer != ""; answer = strings.TrimSpace(answer) {
		quoted, err := strconv.QuotedPrefix(answer)
		if err != nil {
			return nil, fmt.Errorf("database: answer %q is not a list of texts", answer)
		}
		text, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("database: %s is not a text", quoted)
		}
		texts = append(texts, text)
		answer = answer[len(quoted):]
	}
	return texts, nil
}

// request sends one line and returns what follows OK in the answer.
func (c *databaseClient) request(ctx context.Context, line string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.address)
	if err != nil {
		return "", fmt.Errorf("database: %w", err)
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	if _, err := fmt.Fprintln(connection, line); err != nil {
		return "", fmt.Errorf("database: %w", err)
	}
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("database: %w", err)
	}
	rest, ok := strings.CutPrefix(strings.TrimSuffix(answer, "\n"), "OK")
	if !ok {
		return "", fmt.Errorf("database: %s", strings.TrimSpace(answer))
	}
	return rest, nil
}
