// Command outside is what a cluster finds beyond its own network: a stand-in for the internet, for the metadata
// service of a cloud and for a private network next door. It answers on every address that it is given:
//
//	80/TCP   HTTP: / with the method, host and the client's address; /datagrams with what came by UDP;
//	         /queries with the names that were looked up
//	9000     sends back what comes, TCP and UDP
//	53       DNS over UDP and TCP: each name exists
//
// It keeps the last thousand datagrams and queries.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "outside: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var names resolver
	flags := flag.NewFlagSet("outside", flag.ContinueOnError)
	flags.TextVar(&names.self, "self", netip.MustParseAddr("127.0.0.1"), "address of every name that is not the cluster's")
	flags.TextVar(&names.cluster, "cluster", netip.MustParseAddr("127.0.0.1"), "address of the names of the cluster")
	flags.StringVar(&names.domain, "domain", "invalid.", "the names of the cluster are these and those below, with a dot at the end")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names.asked = &journal{}
	datagrams := &journal{}

	web := http.NewServeMux()
	web.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "outside answers %s http://%s%s for %s\n", r.Method, r.Host, r.URL.Path, r.RemoteAddr)
	})
	web.Handle("/datagrams", datagrams)
	web.Handle("/queries", names.asked)
	server := &http.Server{Addr: ":80", Handler: web, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })

	failed := make(chan error, 5)
	go func() { failed <- server.ListenAndServe() }()
	go func() { failed <- serveStream(ctx, ":9000", echo) }()
	go func() { failed <- serveStream(ctx, ":53", names.stream) }()
	go func() {
		failed <- servePackets(ctx, ":9000", func(datagram []byte) []byte {
			datagrams.add(string(datagram))
			return datagram
		})
	}()
	go func() { failed <- servePackets(ctx, ":53", names.answer) }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

func echo(connection net.Conn) { _, _ = io.Copy(connection, connection) }

func serveStream(ctx context.Context, address string, handle func(net.Conn)) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	for {
		connection, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			handle(connection)
		}()
	}
}

// servePackets answers each datagram, unless there is no answer.
func servePackets(ctx context.Context, address string, answer func([]byte) []byte) error {
	socket, err := net.ListenPacket("udp4", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { socket.Close() })
	datagram := make([]byte, 1<<16)
	for {
		n, sender, err := socket.ReadFrom(datagram)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if reply := answer(datagram[:n]); reply != nil {
			// The sender may be unreachable: that must not end the service.
			_, _ = socket.WriteTo(reply, sender)
		}
	}
}

// journal shows the last lines that it was given.
type journal struct {
	mu    sync.Mutex
	lines []string
}

const journalLength = 1000

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	j.lines = j.lines[max(0, len(j.lines)-journalLength):]
}

func (j *journal) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		fmt.Fprintf(w, "%q\n", line)
	}
}
