package proxy

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/proxy/dataconn"
)

func noLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// No port answers a peer without the right certificate.
func TestPeersWithoutCertificates(t *testing.T) {
	p := start(t)
	_, at := p.prepare("one", serve(t, echo))
	_, others := certificates(t, time.Now(), time.Hour)
	expired := t.TempDir()
	issue(t, p.authority, pki.ServerProxy, expired, time.Now().Add(-2*time.Hour), time.Hour)
	expiredController := t.TempDir()
	issue(t, p.authority, pki.Controller, expiredController, time.Now().Add(-2*time.Hour), time.Hour)

	ports := map[string]struct {
		port     int
		protocol string
		serves   pki.Role
		wrong    map[string]string
	}{
		"control of the client proxy": {p.client.ClientControlPort, control.Protocol, pki.ClientProxy, map[string]string{
			"the controller": p.dirs[pki.Controller], "the client proxy itself": p.dirs[pki.ClientProxy],
			"the server proxy of another pair": others[pki.ServerProxy], "an old certificate": expired,
		}},
		"data of the client proxy": {p.client.ClientDataPort, DataProtocol, pki.ClientProxy, map[string]string{
			"the controller": p.dirs[pki.Controller], "the client proxy itself": p.dirs[pki.ClientProxy],
			"the server proxy of another pair": others[pki.ServerProxy], "an old certificate": expired,
		}},
		"control of the server proxy": {p.server.ServerControlPort, control.Protocol, pki.ServerProxy, map[string]string{
			"the client proxy": p.dirs[pki.ClientProxy], "the server proxy itself": p.dirs[pki.ServerProxy],
			"the controller of another pair": others[pki.Controller], "an old certificate": expiredController,
		}},
	}
	for name, port := range ports {
		address := Endpoint{Address: "127.0.0.1", Port: port.port}.String()
		refused := func(t *testing.T, config *tls.Config) {
			t.Helper()
			c, err := tls.Dial("tcp", address, config)
			if err != nil {
				return
			}
			defer c.Close()
			// With TLS 1.3 a client has shaken hands before the server has looked at its certificate.
			_, _ = c.Write(make([]byte, preambleSize))
			isClosed(t, c)
		}
		for who, dir := range port.wrong {
			t.Run(name+" by "+who, func(t *testing.T) {
				config := identityOf(t, dir).Dial(port.serves, port.protocol).Clone()
				config.InsecureSkipVerify, config.VerifyConnection = true, nil
				refused(t, config)
			})
		}
		t.Run(name+" without a certificate", func(t *testing.T) {
			refused(t, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{port.protocol}})
		})
		t.Run(name+" with an old version of TLS", func(t *testing.T) {
			refused(t, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, NextProtos: []string{port.protocol}})
		})
		t.Run(name+" without TLS", func(t *testing.T) {
			c := dial(t, address)
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n"+strings.Repeat("x", 4096))
			_, _ = io.Copy(io.Discard, c) // an alert perhaps, and then the end
		})
	}
	if err := once(at); err != nil {
		t.Errorf("a stranger has done harm: %v", err)
	}
	said := p.log.String()
	if strings.Contains(said, "PRIVATE") || strings.Contains(said, "a stream begins\",\"tunnel\":\"\"") {
		t.Error("the log tells what it should not")
	}
}

// A server proxy sends a token only to its client proxy.
func TestAServerProxyAuthenticatesItsPeer(t *testing.T) {
	countBefore(t)
	authority, dirs := certificates(t, time.Now(), time.Hour)
	_, others := certificates(t, time.Now(), time.Hour)
	self := t.TempDir()
	issue(t, authority, pki.ServerProxy, self, time.Now(), time.Hour)
	for name, dir := range map[string]string{"another pair's client proxy": others[pki.ClientProxy], "another server proxy": self} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			server := newControlServer(identityOf(t, dir), pki.ServerProxy, control.UnimplementedTunnelControlServer{})
			go func() { _ = server.Serve(limited(l, "control", slog.New(slog.DiscardHandler))) }()
			defer server.Stop()
			err = RunServer(t.Context(), ServerOptions{
				Common:         Common{Identity: identityOf(t, dirs[pki.ServerProxy]), MaxStreams: 1, PeerGrace: time.Second, Now: time.Now, Log: noLog(), Ready: func(Ready) { t.Error("it is ready") }},
				Control:        Endpoint{Address: "127.0.0.1"},
				ClientControl:  Endpoint{Address: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port},
				ConnectTimeout: 500 * time.Millisecond,
			})
			if err == nil || !strings.Contains(err.Error(), "certificate") && !strings.Contains(err.Error(), "the peer is not") {
				t.Errorf("%v: want an error about the certificate", err)
			}
		})
	}
}

// thief is a server proxy that has the right certificate, and the tokens that it is told.
type thief struct {
	testing.TB
	client Ready
	self   *pki.Identity
	asked  chan *control.NewStream
	at     string
	log    *testLog
}

func newThief(t *testing.T) *thief {
	countBefore(t)
	_, dirs := certificates(t, time.Now(), time.Hour)
	h := &thief{TB: t, self: identityOf(t, dirs[pki.ServerProxy]), asked: make(chan *control.NewStream, 100), log: &testLog{}}
	h.client, _ = run(t, func(ctx context.Context, ready func(Ready)) error {
		return RunClient(ctx, ClientOptions{
			Common: Common{
				Identity: identityOf(t, dirs[pki.ClientProxy]), MaxStreams: 100, PeerGrace: timeout, Drain: 100 * time.Millisecond,
				Log: slog.New(slog.NewJSONHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Ready: ready, Now: time.Now,
			},
			Control: Endpoint{Address: "127.0.0.1"}, Data: Endpoint{Address: "127.0.0.1"},
			MaxTunnels: 10, MaxTunnelStreams: 10, MaxOpening: 10, OpeningTimeout: time.Minute,
		})
	})
	peer, err := control.Dial(Endpoint{Address: "127.0.0.1", Port: h.client.ClientControlPort}.String(), h.self, pki.ClientProxy)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = peer.Close() })
	stream, err := peer.NewStreamsConnection(withInstance(ctx, "thief"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			wanted, err := stream.Recv()
			if err != nil {
				return
			}
			h.asked <- wanted
		}
	}()
	spec, err := peer.PrepareTunnel(ctx, &control.TunnelRequest{Name: "x", ServerPort: 80, ClientProxyAddress: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	h.at = Endpoint{Address: "127.0.0.1", Port: int(spec.GetClientProxyPort())}.String()
	return h
}

// shows makes a data connection that begins with some bytes.
func (h *thief) shows(first []byte) *dataconn.Conn {
	h.Helper()
	c := dial(h, Endpoint{Address: "127.0.0.1", Port: h.client.ClientDataPort}.String())
	s, err := dataconn.Dial(c, h.self.Dial(pki.ClientProxy, DataProtocol))
	if err != nil {
		h.Fatal(err)
	}
	if err := s.Send(first); err != nil {
		h.Fatal(err)
	}
	return s
}

func (h *thief) next() *control.NewStream {
	h.Helper()
	select {
	case wanted := <-h.asked:
		return wanted
	case <-time.After(timeout):
		h.Fatal("no stream is asked for")
		return nil
	}
}

func TestTokens(t *testing.T) {
	h := newThief(t)
	client := dial(t, h.at)
	wanted := h.next()
	id, tunnel, token := wanted.GetStreamRef().GetStreamId(), wanted.GetStreamRef().GetTunnelId(), wanted.GetToken()
	if len(token) != tokenSize {
		t.Fatalf("the token has %d bytes", len(token))
	}
	guessed := make([]byte, tokenSize)
	_, _ = rand.Read(guessed)
	almost := append([]byte(nil), token...)
	almost[tokenSize-1] ^= 1
	for name, p := range map[string]preamble{
		"a token that is guessed":  newPreamble(tunnel, id, guessed),
		"a token that is close":    newPreamble(tunnel, id, almost),
		"no token":                 newPreamble(tunnel, id, nil),
		"a stream that is not":     newPreamble(tunnel, id+1, token),
		"a tunnel that is not":     newPreamble(tunnel+1, id, token),
		"the stream of everything": newPreamble(0, 0, token),
	} {
		s := h.shows(p[:])
		if n, err := s.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: %d bytes came", name, n)
		}
	}
	long := newPreamble(tunnel, id+1, token)
	tooMuch := h.shows(append(long[:], make([]byte, 1000)...))
	if _, err := tooMuch.Read(make([]byte, 1)); err == nil {
		t.Error("a preamble and more: bytes came")
	}
	// None of that took anything from the one who knows.
	right := newPreamble(tunnel, id, token)
	s := h.shows(right[:])
	if err := s.Send([]byte("\x00\x00\x00\x05hello")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(client, got); err != nil || string(got) != "hello" {
		t.Fatalf("%q, %v", got, err)
	}
	// It is worth nothing any more, while the stream runs and after it.
	for _, when := range []string{"while it runs", "afterwards"} {
		second := h.shows(right[:])
		if _, err := second.Read(make([]byte, 1)); err == nil {
			t.Errorf("a second data connection %s: bytes came", when)
		}
		if when == "while it runs" {
			if err := s.Send([]byte("\x00\x00\x00\x01!")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(client, got[:1]); err != nil {
				t.Errorf("the stream was disturbed: %v", err)
			}
			_ = client.Close()
			_ = s.Close()
		}
	}
	other := dial(t, h.at)
	if again := h.next(); string(again.GetToken()) == string(token) || again.GetStreamRef().GetStreamId() == id {
		t.Error("two streams have the same token or id")
	}
	_ = other.Close()
	if said := h.log.String(); strings.Contains(said, string(token)) {
		t.Error("the log tells a token")
	}
}

// A peer that opens many connections without a handshake keeps no other peer out.
func TestConnectionsWithoutHandshake(t *testing.T) {
	p := start(t)
	_, at := p.prepare("one", serve(t, echo))
	var silent []*net.TCPConn
	for range maxUnauthenticated + 100 {
		for _, port := range []int{p.client.ClientDataPort, p.client.ClientControlPort, p.server.ServerControlPort} {
			silent = append(silent, dial(t, Endpoint{Address: "127.0.0.1", Port: port}.String()))
		}
	}
	if err := once(at); err != nil {
		t.Error(err)
	}
	fresh, err := control.Dial(Endpoint{Address: "127.0.0.1", Port: p.server.ServerControlPort}.String(), identityOf(t, p.dirs[pki.Controller]), pki.ServerProxy)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if _, err := fresh.ListTunnels(t.Context(), &control.ListTunnelsRequest{}); err != nil {
		t.Error(err)
	}
	isClosed(t, silent[0])
	for _, c := range silent {
		_ = c.Close()
	}
}

// Certificates are renewed, and even the authority, without a stream being dropped.
func TestRenewal(t *testing.T) {
	p := start(t)
	_, at := p.prepare("one", serve(t, echo))
	held := dial(t, at)
	asks(t, held, "before")
	old := p.list().GetCertificateNotAfter()

	for role, dir := range p.dirs {
		issue(t, p.authority, role, dir, time.Now(), 2*time.Hour)
	}
	asks(t, held, "after the renewal")
	if err := once(at); err != nil {
		t.Error(err)
	}
	if now := p.list().GetCertificateNotAfter(); now < old+3000 {
		t.Errorf("the certificate ends at %d, and before at %d", now, old)
	}

	stolen := t.TempDir()
	issue(t, p.authority, pki.Controller, stolen, time.Now(), time.Hour)
	next, err := pki.NewAuthority("the next one", time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for role, dir := range p.dirs {
		issue(t, next, role, dir, time.Now(), time.Hour)
	}
	asks(t, held, "after the next authority")
	if err := once(at); err != nil {
		t.Error(err)
	}
	thief, err := control.Dial(Endpoint{Address: "127.0.0.1", Port: p.server.ServerControlPort}.String(), identityOf(t, stolen), pki.ServerProxy)
	if err != nil {
		t.Fatal(err)
	}
	defer thief.Close()
	if _, err := thief.ListTunnels(t.Context(), &control.ListTunnelsRequest{}); err == nil {
		t.Error("a certificate of the former authority is still believed")
	}
}
