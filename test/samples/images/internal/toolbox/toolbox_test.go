package toolbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// call runs a command through the dispatcher, as a program named "service" would.
func call(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	streams := Streams{In: strings.NewReader(input), Out: &out, Err: &out}
	err := dispatch(t.Context(), streams, append([]string{"/usr/bin/service"}, args...), func(context.Context) error {
		return errors.New("the service was started")
	})
	return out.String(), err
}

func TestDispatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := dispatch(t.Context(), Streams{Out: &out}, []string{"/usr/bin/cat", file}, nil); err != nil || out.String() != "content" {
		t.Errorf("by link: %q, %v", out.String(), err)
	}
	if got, err := call(t, "", "cat", file); err != nil || got != "content" {
		t.Errorf("by argument: %q, %v", got, err)
	}
	if _, err := call(t, ""); err == nil || err.Error() != "the service was started" {
		t.Errorf("without arguments: %v", err)
	}
	if _, err := call(t, "", "sh"); err == nil || !strings.Contains(err.Error(), `unknown command "sh": want one of cat, exhaust, get,`) {
		t.Errorf("unknown command: %v", err)
	}
}

func TestExhaustDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if got, err := call(t, "", "exhaust", "disk", file, "3000000"); err != nil || got != "3000000 bytes written\n" {
		t.Errorf("exhaust disk = %q, %v", got, err)
	}
	if info, err := os.Stat(file); err != nil || info.Size() != 3000000 {
		t.Errorf("file %v, %v", info, err)
	}
	for _, args := range [][]string{{}, {"patience"}, {"disk", file}, {"disk", file, "much"}, {"disk", "/dev/full", "1"}} {
		if got, err := call(t, "", append([]string{"exhaust"}, args...)...); err == nil {
			t.Errorf("exhaust %v = %q, no error", args, got)
		}
	}
}

func TestLs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o111|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	owner := fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	got, err := call(t, "", "ls", dir)
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if err != nil || len(lines) != 2 || !strings.HasPrefix(lines[0], "d ") || lines[1] != "- 2111 "+owner+" 4 "+file {
		t.Errorf("ls DIR = %q (%v)", got, err)
	}
	if got, err := call(t, "", "ls", file); err != nil || got != "- 2111 "+owner+" 4 "+file+"\n" {
		t.Errorf("ls FILE = %q (%v)", got, err)
	}
	if _, err := call(t, "", "ls", file+"x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ls of nothing: %v", err)
	}
}

func TestPrintenv(t *testing.T) {
	t.Setenv("TOOLBOX_TEST", "a=b")
	if got, err := call(t, "", "printenv", "TOOLBOX_TEST"); err != nil || got != "a=b\n" {
		t.Errorf("printenv NAME = %q, %v", got, err)
	}
	if got, err := call(t, "", "printenv"); err != nil || !strings.Contains(got, "\nTOOLBOX_TEST=a=b\n") {
		t.Errorf("printenv = %q, %v", got, err)
	}
	if _, err := call(t, "", "printenv", "TOOLBOX_NOT_SET"); err == nil {
		t.Error("a variable that is not set is no error")
	}
}

func TestRun(t *testing.T) {
	if got, err := call(t, "input", "run", "/bin/sh", "-c", "cat; echo :$1", "-", "argument"); err != nil || got != "input:argument\n" {
		t.Errorf("run = %q, %v", got, err)
	}
	_, err := call(t, "", "run", "/bin/sh", "-c", "exit 7")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("run of a failing program: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("run -user needs root")
	}
	if got, err := call(t, "", "run", "-user", "1234", "/bin/sh", "-c", "id -u; id -G"); err != nil || got != "1234\n1234\n" {
		t.Errorf("run -user = %q, %v", got, err)
	}
}

func TestID(t *testing.T) {
	want := fmt.Sprintf("uid=%d gid=%d groups=", os.Getuid(), os.Getgid())
	if got, err := call(t, "", "id"); err != nil || !strings.HasPrefix(got, want) {
		t.Errorf("id = %q, %v", got, err)
	}
}

func TestGet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.Error(w, "nothing here", http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, "%s %s", r.Host, r.Header.Get("X-Test"))
	}))
	defer server.Close()
	if got, err := call(t, "", "get", "-header", "Host: web.example", "-header", "X-Test: 1", server.URL); err != nil || got != "web.example 1" {
		t.Errorf("get = %q, %v", got, err)
	}
	if got, err := call(t, "", "get", "-include", server.URL); err != nil || !strings.HasPrefix(got, "HTTP/1.1 200 OK\n") {
		t.Errorf("get -include = %q, %v", got, err)
	}
	if got, err := call(t, "", "get", server.URL+"/missing"); err == nil || got != "nothing here\n" {
		t.Errorf("get of an error = %q, %v", got, err)
	}
	if got, err := call(t, "", "get", "-connect", server.Listener.Addr().String(), "http://web.example/"); err != nil || got != "web.example " {
		t.Errorf("get -connect = %q, %v", got, err)
	}
	secure := httptest.NewTLSServer(server.Config.Handler)
	defer secure.Close()
	if got, err := call(t, "", "get", secure.URL); err == nil {
		t.Errorf("get of a server with an unknown certificate = %q", got)
	}
	if got, err := call(t, "", "get", "-insecure", "-connect", secure.Listener.Addr().String(), "https://web.example/"); err != nil || got != "web.example " {
		t.Errorf("get -insecure = %q, %v", got, err)
	}
}

func TestTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- ServeTCP(ctx, address, 1, func(_ context.Context, connection net.Conn) {
			request := make([]byte, 5)
			if _, err := connection.Read(request); err == nil {
				fmt.Fprintf(connection, "got %s", request)
			}
		})
	}()
	// Twice, since the second client needs the only slot that the first had.
	for range 2 {
		eventually(t, func() error {
			got, err := call(t, "hello", "tcp", address)
			if err == nil && got != "got hello" {
				t.Fatalf("tcp = %q", got)
			}
			return err
		})
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("ServeTCP after the end of its context: %v", err)
	}
	if _, err := call(t, "hello", "tcp", address); err == nil {
		t.Error("tcp to a closed port is no error")
	}
}

func TestTCPGivesUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if _, err := call(t, "", "tcp", "-timeout", "50ms", listener.Addr().String()); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("tcp to a silent service: %v", err)
	}
}

func TestUDP(t *testing.T) {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	go func() {
		received := make([]byte, 100)
		n, sender, err := socket.ReadFrom(received)
		if err == nil {
			_, _ = socket.WriteTo(bytes.ToUpper(received[:n]), sender)
		}
	}()
	if got, err := call(t, "hello", "udp", socket.LocalAddr().String()); err != nil || got != "HELLO" {
		t.Errorf("udp = %q, %v", got, err)
	}
}

func TestLookup(t *testing.T) {
	if got, err := call(t, "", "lookup", "127.0.0.1"); err != nil || got != "127.0.0.1\n" {
		t.Errorf("lookup = %q, %v", got, err)
	}
}

func TestTogetherStopsWithTheFirstFailure(t *testing.T) {
	broken := errors.New("broken")
	err := Together(t.Context(),
		func(ctx context.Context) error { <-ctx.Done(); return nil },
		func(context.Context) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("error = %v", err)
	}
}

func eventually(t *testing.T, attempt func() error) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := attempt()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatal(err)
		}
	}
}
