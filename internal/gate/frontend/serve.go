package frontend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/bergctf/berg-operator/internal/gate/routing"
	"github.com/bergctf/berg-operator/internal/gate/upstream"
	"github.com/bergctf/berg-operator/internal/kit/ports"
)

// New returns a Frontend.
func New(table *routing.Table, dialer *upstream.Dialer, options Options, metrics *Metrics) (*Frontend, error) {
	f := &Frontend{
		options: options, table: table, dialer: dialer, metrics: metrics,
		total: newCounter[struct{}](options.Limits.Total), hosts: newCounter[string](options.Limits.Host), visits: newCounter[visit](max(options.Limits.Host/2, 1)),
		guests: ports.NewGate(ports.Limits{Untrusted: max(options.Limits.Total/guestShare, 1), Address: options.Limits.Address}, slog.New(slog.DiscardHandler)),
		rates:  &rates{bytes: options.Limits.Rate, requests: options.Limits.Requests, open: map[netip.Prefix]*sharedRate{}}, buffers: newBuffers(),
	}
	f.secure = f.newSecure()
	if len(options.TrustedProxies) > 0 {
		var err error
		if f.trusted, err = proxyproto.PolicyFromRanges(options.TrustedProxies, proxyproto.REQUIRE, proxyproto.SKIP); err != nil {
			return nil, fmt.Errorf("the trusted proxies: %w", err)
		}
	}
	f.proxy = f.newProxy(upstream.NewTransport(dialer))
	return f, nil
}

// Serve accepts connections at a port of Gateways until ctx is done. Then it answers what it has begun, and streams continue for Drain.
func (f *Frontend) Serve(ctx context.Context, port routing.Port, listener net.Listener) error {
	if f.trusted != nil {
		listener = &proxyproto.Listener{Listener: listener, ConnPolicy: f.trusted, ReadHeaderTimeout: handshakeTime}
	}
	accepted := newQueue(listener.Addr())
	server := f.newServer(port)
	served := make(chan error, 1)
	go func() { served <- server.Serve(accepted) }()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	var open sync.WaitGroup
	for {
		conn, err := listener.Accept()
		if err != nil {
			if exhausted(err) && ctx.Err() == nil {
				pause(ctx, acceptPause)
				continue
			}
			if ctx.Err() == nil {
				_ = server.Close()
				return fmt.Errorf("accept connections at port %d: %w", port.Number, err)
			}
			break
		}
		if !f.total.take(struct{}{}) {
			f.metrics.refused("total")
			_ = conn.Close()
			continue
		}
		open.Add(1)
		go f.begin(ctx, port, conn, accepted, func() { f.total.release(struct{}{}); open.Done() })
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.options.Drain)
	defer cancel()
	err := server.Shutdown(drain)
	waitFor(drain, &open)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("end the connections of port %d: %w", port.Number, err)
	}
	_ = server.Close()
	return nil
}

// exhausted reports whether Accept failed for now only: the process or the machine has too many files, or the client has gone.
func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM) ||
		errors.Is(err, syscall.ECONNABORTED)
}

func pause(ctx context.Context, duration time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(duration):
	}
}

// waitFor waits until all connections have ended, those that left HTTP included, or until ctx is done: the end of the process ends the others.
func waitFor(ctx context.Context, open *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() { open.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// begin reads who the client is and what it wants. It runs in a goroutine of the connection, because both may take long. All of
// it counts until release, which runs once, however the connection ends.
func (f *Frontend) begin(ctx context.Context, port routing.Port, conn net.Conn, accepted *queue, ended func()) {
	from := ports.Network(conn.RemoteAddr()) // reads the header of the PROXY protocol
	guest := f.guests.Admit(conn)
	if guest == nil {
		f.metrics.refused("address")
		ended()
		return
	}
	open, closed := context.WithCancel(context.WithoutCancel(ctx))
	player := &client{Conn: conn, guest: guest, from: from, rate: f.rates.join(from), open: open, release: sync.OnceFunc(func() {
		closed()
		guest.Leave()
		f.rates.leave(from)
		ended()
	})}
	if f.table.Plain(port) {
		accepted.push(player)
		return
	}
	f.beginTLS(ctx, port, player, accepted)
}

// newServer returns the HTTP server of a port.
func (f *Frontend) newServer(port routing.Port) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // programs that know that the port has it
	return &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serveHTTP(w, r, port) }),
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ConnContext: withClient, Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), // clients cause its lines
	}
}
