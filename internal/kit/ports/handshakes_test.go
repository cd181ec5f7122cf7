package ports

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// A client whose address is known waits for no stranger but the one who computes. A connection that ends passes its turn on.
func TestHandshakesOfKnownAddressesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(Limits{}, slog.New(slog.DiscardHandler))
		g.handshakes.limit = 1
		g.Admit(visitor("192.0.2.2")).Trust()
		var mu sync.Mutex
		var order []string
		begin := func(name, address string) *Guest {
			v := g.Admit(visitor(address))
			go func() {
				if v.Compute() != nil {
					name += " ended"
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			}()
			synctest.Wait()
			return v
		}
		first, second := begin("first", "192.0.2.1"), begin("second", "192.0.2.1")
		left, known := begin("left", "192.0.2.1"), begin("known", "192.0.2.2")
		left.Leave()
		synctest.Wait()
		first.Computed()
		first.Computed() // each write calls it
		synctest.Wait()
		known.Leave() // without an answer
		synctest.Wait()
		second.Computed()
		next := begin("next", "192.0.2.1")
		next.Leave()
		if next.Compute() == nil {
			t.Error("a connection that has ended computes")
		}
		if want := []string{"first", "left ended", "known", "second", "next"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
		if all := &g.handshakes; all.computing != 0 || all.strangers.Len()+all.first.Len() != 0 {
			t.Errorf("%d compute and %d wait in the end", all.computing, all.strangers.Len()+all.first.Len())
		}
	})
}

// A stranger who says hello and reads nothing has had his turn: others are served.
func TestHandshakesWaitForNoStranger(t *testing.T) {
	sample := httptest.NewTLSServer(nil)
	defer sample.Close()
	address := start(t, Options{TLS: sample.TLS, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	hello := clientHello(t)
	for range 4 * newHandshakes().limit {
		send(t, address, hello)
	}
	client := sample.Client()
	client.Transport.(*http.Transport).DisableKeepAlives = true
	var asking sync.WaitGroup
	for range 8 * newHandshakes().limit {
		asking.Go(func() {
			answer, err := client.Get("https://" + address)
			if err != nil {
				t.Error(err)
				return
			}
			_ = answer.Body.Close()
		})
	}
	asking.Wait()
}

// clientHello returns the first bytes of a client.
func clientHello(t *testing.T) string {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go func() { _ = tls.Client(near, &tls.Config{ServerName: "example.com"}).Handshake() }()
	header := make([]byte, 5)
	if _, err := io.ReadFull(far, header); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, int(header[3])<<8|int(header[4]))
	if _, err := io.ReadFull(far, body); err != nil {
		t.Fatal(err)
	}
	return string(header) + string(body)
}
