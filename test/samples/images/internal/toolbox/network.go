package toolbox

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// defaultTimeout bounds every network command: a test that looks at a closed path must not hang.
const defaultTimeout = 10 * time.Second

// get [-timeout D] [-header K:V]... [-include] [-connect HOST:PORT] [-insecure] URL: prints the body
// of the answer, after status and headers with -include. A status of 400 and above is an error. With
// -connect it goes there and ignores the host of the URL; with -insecure it takes any certificate.
func get(ctx context.Context, streams Streams, args []string) error {
	flags := newFlagSet()
	timeout := flags.Duration("timeout", defaultTimeout, "")
	include := flags.Bool("include", false, "")
	connect := flags.String("connect", "", "")
	insecure := flags.Bool("insecure", false, "")
	headers := http.Header{}
	flags.Func("header", "", func(text string) error {
		key, value, found := strings.Cut(text, ":")
		if !found {
			return errors.New("want NAME:VALUE")
		}
		headers.Add(key, strings.TrimSpace(value))
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("want [-timeout D] [-header NAME:VALUE]... [-include] [-connect HOST:PORT] [-insecure] URL")
	}

	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, flags.Arg(0), nil)
	if err != nil {
		return err
	}
	request.Header = headers
	// net/http takes the host from here, never from the headers.
	if host := headers.Get("Host"); host != "" {
		request.Host = host
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: *insecure, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, cmp.Or(*connect, address))
		},
	}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if *include {
		fmt.Fprintln(streams.Out, response.Proto, response.Status)
		if err := response.Header.Write(streams.Out); err != nil {
			return err
		}
		fmt.Fprintln(streams.Out)
	}
	if _, err := io.Copy(streams.Out, response.Body); err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answered %s", flags.Arg(0), response.Status)
	}
	return nil
}

// tcp [-timeout D] HOST:PORT: sends standard input, then prints what comes until the other side
// closes.
func tcp(ctx context.Context, streams Streams, args []string) error {
	connection, err := dial(ctx, "tcp", args)
	if err != nil {
		return err
	}
	defer connection.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := io.Copy(connection, streams.In)
		sent <- errors.Join(err, connection.(*net.TCPConn).CloseWrite())
	}()
	if _, err := io.Copy(streams.Out, connection); err != nil {
		return err
	}
	select {
	case err := <-sent:
		return err
	default:
		// The other side is done although input is left: that is its right.
		return nil
	}
}

// udp [-timeout D] HOST:PORT: sends standard input as one datagram and prints the first answer.
func udp(ctx context.Context, streams Streams, args []string) error {
	connection, err := dial(ctx, "udp", args)
	if err != nil {
		return err
	}
	defer connection.Close()
	message, err := io.ReadAll(streams.In)
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	if _, err := connection.Write(message); err != nil {
		return err
	}
	answer := make([]byte, 1<<16)
	n, err := connection.Read(answer)
	if err != nil {
		return err
	}
	_, err = streams.Out.Write(answer[:n])
	return err
}

// dial connects to the address in args; the timeout covers everything that follows.
func dial(ctx context.Context, network string, args []string) (net.Conn, error) {
	flags := newFlagSet()
	timeout := flags.Duration("timeout", defaultTimeout, "")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() != 1 {
		return nil, errors.New("want [-timeout D] HOST:PORT")
	}
	deadline := time.Now().Add(*timeout)
	connection, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, network, flags.Arg(0))
	if err != nil {
		return nil, err
	}
	return connection, connection.SetDeadline(deadline)
}

// lookup NAME...: prints each address of the names.
func lookup(ctx context.Context, streams Streams, names []string) error {
	if len(names) == 0 {
		return errors.New("want NAME, one or more")
	}
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	for _, name := range names {
		addresses, err := net.DefaultResolver.LookupHost(ctx, name)
		if err != nil {
			return err
		}
		for _, address := range addresses {
			fmt.Fprintln(streams.Out, address)
		}
	}
	return nil
}
