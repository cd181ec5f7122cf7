package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/internal/kit/allowlist"
	"github.com/bergctf/berg-operator/internal/tunnel/control"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// timeout is how long a test waits for what must happen.
const timeout = 20 * time.Second

// number returns a size for a test: the default, or that of an environment variable.
func number(name string, standard int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return standard
}

// certificates makes an authority and a folder for each role.
func certificates(t testing.TB, now time.Time, validity time.Duration) (*pki.Authority, map[pki.Role]string) {
	t.Helper()
	authority, err := pki.NewAuthority("test", now, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[pki.Role]string{}
	for _, role := range []pki.Role{pki.ClientProxy, pki.ServerProxy, pki.Controller} {
		dirs[role] = t.TempDir()
		issue(t, authority, role, dirs[role], now, validity)
	}
	return authority, dirs
}

// issue writes a new certificate of a role, as a mounted Secret would change.
func issue(t testing.TB, authority *pki.Authority, role pki.Role, dir string, now time.Time, validity time.Duration) {
	t.Helper()
	pair, err := authority.Issue(role, now, validity)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		pki.AuthorityFile: authority.Certificate, pki.CertificateFile: pair.Certificate, pki.KeyFile: pair.Key,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

func identityOf(t testing.TB, dir string) *pki.Identity {
	t.Helper()
	identity, err := pki.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

// testLog is what both proxies log. It is shown when a test fails.
type testLog struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// pair is two proxies in this process, and a controller.
type pair struct {
	testing.TB
	authority *pki.Authority
	dirs      map[pki.Role]string
	client    Ready
	server    Ready
	*control.Client
	endClient, endServer func() error
	log                  *testLog
}

// options may be changed by a test before the pair begins.
type options struct {
	client ClientOptions
	server ServerOptions
	// between, if set, is called when the client proxy is ready, and tells where the server proxy
	// is to dial.
	between func(Ready) (control, data Endpoint)
}

func start(t testing.TB, change ...func(*options)) *pair {
	t.Helper()
	countBefore(t)
	p := &pair{TB: t, log: &testLog{}}
	p.authority, p.dirs = certificates(t, time.Now(), time.Hour)
	log := slog.New(slog.NewJSONHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.Cleanup(func() {
		if t.Failed() {
			said := p.log.String()
			t.Log("the end of the log:\n" + said[max(0, len(said)-4000):])
		}
	})
	common := Common{MaxStreams: 20000, PeerGrace: 2 * time.Second, Drain: 200 * time.Millisecond, Log: log, Now: time.Now}
	anywhere := Endpoint{Address: "127.0.0.1"}
	o := &options{
		client: ClientOptions{Common: common, Control: anywhere, Data: anywhere, MaxTunnels: 16, MaxTunnelStreams: 20000, MaxOpening: 64, OpeningTimeout: time.Minute},
		server: ServerOptions{Common: common, Control: anywhere, Servers: loopbackRules(), Names: net.DefaultResolver, ConnectTimeout: timeout, DialTimeout: time.Minute},
	}
	o.client.Identity, o.server.Identity = identityOf(t, p.dirs[pki.ClientProxy]), identityOf(t, p.dirs[pki.ServerProxy])
	for _, c := range change {
		c(o)
	}
	p.client, p.endClient = run(t, func(ctx context.Context, ready func(Ready)) error {
		o.client.Ready = ready
		return RunClient(ctx, o.client)
	})
	o.server.ClientControl = Endpoint{Address: "127.0.0.1", Port: p.client.ClientControlPort}
	o.server.ClientData = Endpoint{Address: "127.0.0.1", Port: p.client.ClientDataPort}
	if o.between != nil {
		o.server.ClientControl, o.server.ClientData = o.between(p.client)
	}
	p.server, p.endServer = run(t, func(ctx context.Context, ready func(Ready)) error {
		o.server.Ready = ready
		return RunServer(ctx, o.server)
	})
	var err error
	p.Client, err = control.Dial(Endpoint{Address: "127.0.0.1", Port: p.server.ServerControlPort}.String(), identityOf(t, p.dirs[pki.Controller]), pki.ServerProxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// run starts a proxy, and returns when it is ready. end lets it end, and returns what it said.
func run(t testing.TB, proxy func(context.Context, func(Ready)) error) (Ready, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	isReady, ended := make(chan Ready, 1), make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = proxy(ctx, func(r Ready) { isReady <- r })
	}()
	end := func() error {
		cancel()
		return waitFor(t, ended, &result)
	}
	t.Cleanup(func() { _ = end() })
	select {
	case r := <-isReady:
		return r, end
	case <-ended:
		t.Fatalf("the proxy has ended before it was ready: %v", result)
	case <-time.After(timeout):
		t.Fatal("the proxy is not ready")
	}
	return Ready{}, nil
}

func waitFor(t testing.TB, ended chan struct{}, result *error) error {
	t.Helper()
	select {
	case <-ended:
		return *result
	case <-time.After(timeout):
		all := make([]byte, 1<<20)
		t.Fatalf("the proxy does not end:\n%s", all[:runtime.Stack(all, true)])
		return nil
	}
}

// countBefore counts goroutines and file descriptors, and again when all else is cleaned up.
func countBefore(t testing.TB) {
	t.Helper()
	// What Go opens once, for good.
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		_ = l.Close()
	}
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		within(t, "goroutines and files as before", func() bool {
			return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files
		}, func() {
			all := make([]byte, 1<<20)
			t.Logf("%d goroutines, %d before; %d files, %d before\n%s", runtime.NumGoroutine(), goroutines, openFiles(t), files, all[:runtime.Stack(all, true)])
		})
	})
}

func openFiles(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// within waits until something is so.
func within(t testing.TB, what string, is func() bool, otherwise ...func()) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for !is() {
		if time.Now().After(deadline) {
			for _, tell := range otherwise {
				tell()
			}
			t.Fatalf("not within %s: %s", timeout, what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// serve lets a server listen at the loopback, and do the same with each connection.
func serve(t testing.TB, each func(*net.TCPConn)) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				each(c.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// echo sends back what comes, as it comes.
func echo(c *net.TCPConn) {
	_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	_ = c.CloseWrite()
}

// prepare makes a tunnel and returns where it listens.
func (p *pair) prepare(name string, port int) (*control.TunnelSpec, string) {
	p.Helper()
	spec, err := p.PrepareTunnel(p.Context(), &control.TunnelRequest{Name: name, ServerPort: int32(port), ClientProxyAddress: "127.0.0.1"})
	if err != nil {
		p.Fatal(err)
	}
	return spec, Endpoint{Address: spec.GetClientProxyAddresses()[0], Port: int(spec.GetClientProxyPort())}.String()
}

func dial(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(timeout))
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// asks sends some words and expects them back.
func asks(t testing.TB, c net.Conn, words string) {
	t.Helper()
	if _, err := io.WriteString(c, words); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(words))
	if _, err := io.ReadFull(c, back); err != nil || string(back) != words {
		t.Fatalf("%q came back for %q: %v", back, words, err)
	}
}

// isClosed expects the other side to say no more, and nothing before that.
func isClosed(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(timeout))
	n, err := c.Read(make([]byte, 1))
	var late net.Error
	if n > 0 || err == nil || (errors.As(err, &late) && late.Timeout()) {
		t.Fatalf("the connection is not closed: %d bytes, %v", n, err)
	}
}

// list returns the tunnels.
func (p *pair) list() *control.ListTunnelsResponse {
	p.Helper()
	all, err := p.ListTunnels(p.Context(), &control.ListTunnelsRequest{})
	if err != nil {
		p.Fatal(err)
	}
	return all
}

// loopbackRules allow servers on this machine, except those of Kubernetes.
func loopbackRules() allowlist.Rules {
	allowed, _ := allowlist.ParseNetworks(allowlist.DefaultAllowed)
	ports, _ := allowlist.ParsePorts(allowlist.DefaultDeniedPorts)
	return allowlist.Rules{Allowed: allowed, DeniedPorts: ports}
}
