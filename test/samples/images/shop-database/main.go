// Command shop-database is the store of the sample shop: lists of texts in memory, by a protocol of
// one line per request and answer. Texts are quoted, so that they may hold line breaks.
//
//	ADD list "text"   →  OK
//	ALL list          →  OK "text" "text" …
//
// Everything else is answered with ERR and a reason.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/bergctf/berg-operator/test/samples/images/internal/toolbox"
)

const (
	port           = "5555"
	maxConnections = 64
	// maxTexts is how many texts of a list are kept; older ones make room.
	maxTexts = 50
	// maxLine is the longest request, in bytes.
	maxLine = 16 << 10
)

func main() {
	toolbox.Main(func(ctx context.Context) error {
		store := &store{lists: map[string][]string{}}
		return toolbox.ServeTCP(ctx, toolbox.Address(port), maxConnections, store.serve)
	})
}

type store struct {
	mutex sync.Mutex
	lists map[string][]string
}

func (s *store) serve(ctx context.Context, client net.Conn) {
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	requests := bufio.NewScanner(client)
	requests.Buffer(nil, maxLine)
	for requests.Scan() {
		if _, err := fmt.Fprintln(client, s.answer(requests.Text())); err != nil {
			return
		}
	}
}

func (s *store) answer(request string) string {
	verb, rest, _ := strings.Cut(request, " ")
	list, quoted, _ := strings.Cut(rest, " ")
	if list == "" {
		return "ERR want ADD list \"text\" or ALL list"
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch verb {
	case "ADD":
		text, err := strconv.Unquote(quoted)
		if err != nil {
			return "ERR the text is not quoted"
		}
		texts := append(s.lists[list], text)
		s.lists[list] = texts[max(0, len(texts)-maxTexts):]
		return "OK"
	case "ALL":
		answer := "OK"
		for _, text := range s.lists[list] {
			answer += " " + strconv.Quote(text)
		}
		return answer
	default:
		return "ERR unknown request " + strconv.Quote(verb)
	}
}
