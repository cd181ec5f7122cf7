package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/cmd/berg-tunnel/command"
)

const timeout = 20 * time.Second

// The test is the program, too, so that processes can be killed.
func TestMain(m *testing.M) {
	if os.Getenv("BERG_TUNNEL_TEST") == "program" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a proxy that runs.
type process struct {
	*exec.Cmd
	ready map[string]any
	mu    sync.Mutex
	log   bytes.Buffer
	done  chan struct{}
	code  int
}

func program(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0], args...)
	c.Env = append(os.Environ(), "BERG_TUNNEL_TEST=program")
	return c
}

// says runs the program to its end.
func says(t *testing.T, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	c := program(ctx, args...)
	said, err := c.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(said), c.ProcessState.ExitCode()
}

// Write takes the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start runs a proxy, and returns when it is ready.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: program(context.Background(), args...), done: make(chan struct{})}
	p.Stderr = p
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 10)
	go func() {
		defer close(p.done)
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
		_ = p.Wait()
		p.code = p.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s:\n%s", args[0], p.logged())
		}
	})
	select {
	case line, ok := <-lines:
		if !ok {
			t.Fatalf("%s has ended: %s", args[0], p.logged())
		}
		if err := json.Unmarshal([]byte(line), &p.ready); err != nil {
			t.Fatalf("the first line is %q: %v", line, err)
		}
		if strings.Contains(line, "-----BEGIN") {
			t.Errorf("the first line holds a secret: %s", line)
		}
	case <-time.After(timeout):
		t.Fatalf("%s is not ready: %s", args[0], p.logged())
	}
	return p
}

func (p *process) port(t *testing.T, key string) string {
	t.Helper()
	port, ok := p.ready[key].(float64)
	if !ok || port == 0 {
		t.Fatalf("%v has no %s", p.ready, key)
	}
	return strconv.Itoa(int(port))
}

// ends waits for the end, and returns the exit code.
func (p *process) ends(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.code
	case <-time.After(timeout):
		t.Fatalf("it does not end: %s", p.logged())
		return -1
	}
}

// pair starts both, with a tunnel to a server that echoes, and returns where the tunnel is.
func pair(t *testing.T, more ...string) (client, server *process, dir, at string) {
	t.Helper()
	dir = t.TempDir()
	if said, code := says(t, "certificates", "--output", dir); code != 0 {
		t.Fatal(said)
	}
	client = start(t, append([]string{
		"client", "--tls-dir", filepath.Join(dir, "client"), "--client-control-address", "127.0.0.1",
		"--client-control-port", "0", "--client-data-address", "127.0.0.1", "--client-data-port", "0",
	}, more...)...)
	server = start(t, append([]string{
		"server", "--tls-dir", filepath.Join(dir, "server"), "--client-control-address", "127.0.0.1",
		"--client-control-port", client.port(t, "client_control_port"), "--client-data-port", client.port(t, "client_data_port"),
	}, more...)...)
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echo.Close() })
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_, echoPort, _ := net.SplitHostPort(echo.Addr().String())
	said, code := says(t, calls(t, server, dir, "prepare", "--name", "echo", "--server-port", echoPort,
		"--client-proxy-address", "127.0.0.1", "--client-proxy-port", port)...)
	if code != 0 || !strings.Contains(said, "127.0.0.1:"+port) {
		t.Fatalf("prepare: %d, %s", code, said)
	}
	return client, server, dir, "127.0.0.1:" + port
}

func calls(t *testing.T, server *process, dir string, args ...string) []string {
	t.Helper()
	return append([]string{"control", "--tls-dir", filepath.Join(dir, "controller"), "--server-control-port", server.port(t, "server_control_port")}, args...)
}

func asks(t *testing.T, at string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(timeout))
	back := make([]byte, 5)
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, back); err != nil || string(back) != "hello" {
		t.Fatalf("%q, %v", back, err)
	}
	return c
}

// What docs/tunnel/proxy.md tells a person to do.
func TestByHand(t *testing.T) {
	client, server, dir, at := pair(t)
	asks(t, at)
	if said, code := says(t, calls(t, server, dir, "list")...); code != 0 || !strings.Contains(said, "echo") || !strings.Contains(said, "1 of 1") {
		t.Errorf("list: %d, %s", code, said)
	}
	if said, code := says(t, calls(t, server, dir, "prepare", "--name", "x", "--server-port", "10250")...); code != 1 || !strings.Contains(said, "PermissionDenied") {
		t.Errorf("the kubelet: %d, %s", code, said)
	}
	if said, code := says(t, "certificates", "--output", dir); code != 0 {
		t.Errorf("renew: %d, %s", code, said)
	}
	if said, code := says(t, calls(t, server, dir, "delete", "1")...); code != 0 {
		t.Errorf("delete: %d, %s", code, said)
	}
	if _, err := net.Dial("tcp", at); err == nil {
		t.Error("the tunnel is still there")
	}
	if said, code := says(t, calls(t, server, dir, "shutdown")...); code != 0 {
		t.Errorf("shutdown: %d, %s", code, said)
	}
	if c, s := client.ends(t), server.ends(t); c != command.ExitOK || s != command.ExitOK {
		t.Errorf("they ended with %d and %d", c, s)
	}
	for _, p := range []*process{client, server} {
		for n, line := range strings.Split(strings.TrimSpace(p.logged()), "\n") {
			if !json.Valid([]byte(line)) {
				t.Errorf("line %d of the log is no JSON: %s", n+1, line)
			}
		}
		if strings.Contains(p.logged(), "PRIVATE") {
			t.Error("a key is in the log")
		}
	}
}

func TestSIGTERM(t *testing.T) {
	client, server, _, at := pair(t, "--drain", "20s")
	c := asks(t, at)
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// It drains: what runs goes on, and ends the drain with its end.
	deadline := time.Now().Add(timeout)
	for {
		late, err := net.Dial("tcp", at)
		if err != nil {
			break
		}
		_ = late.Close()
		if time.Now().After(deadline) {
			t.Fatal("new streams are still taken")
		}
		<-time.After(5 * time.Millisecond)
	}
	if _, err := io.WriteString(c, "still"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if a, b := client.ends(t), server.ends(t); a != command.ExitOK || b != command.ExitOK {
		t.Errorf("they ended with %d and %d", a, b)
	}
}

func TestASecondSignalDoesNotWait(t *testing.T) {
	_, server, _, at := pair(t, "--drain", "10m")
	asks(t, at)
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(timeout)
	for ended := false; !ended; {
		_ = server.Process.Signal(syscall.SIGTERM)
		select {
		case <-server.done:
			ended = true
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			t.Fatal("it continues draining")
		}
	}
}

func TestOneIsKilled(t *testing.T) {
	for _, who := range []string{"client", "server"} {
		t.Run(who, func(t *testing.T) {
			client, server, _, at := pair(t, "--peer-grace", "300ms")
			c := asks(t, at)
			victim, other := client, server
			if who == "server" {
				victim, other = server, client
			}
			if err := victim.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes came after the end", n)
			}
			if code := other.ends(t); code != command.ExitPeerGone {
				t.Errorf("the other one ended with %d", code)
			}
		})
	}
}

func TestWrongUsage(t *testing.T) {
	dir := t.TempDir()
	if said, code := says(t, "certificates", "--output", dir); code != 0 {
		t.Fatal(said)
	}
	client := "--tls-dir=" + filepath.Join(dir, "client")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for _, c := range []struct {
		args  string
		code  int
		tells string
	}{
		{"", 2, "--help"},
		{"no-such-command", 2, "no-such-command"},
		{"control delete", 2, "ID is missing: want berg-tunnel control delete ID [flags], see berg-tunnel control delete --help"},
		{"client", 2, "--tls-dir"},
		{"client --tls-dir /does/not/exist", 2, "ca.crt"},
		{"client --no-such-flag", 2, "no-such-flag"},
		{"client more", 2, "more"},
		{"client " + client + " --client-data-port 70000", 2, "--client-data-port"},
		{"client " + client + " --max-tunnels 0", 2, "--max-tunnels"},
		{"client " + client + " --max-tunnel-streams 0", 2, "--max-tunnel-streams"},
		{"client " + client + " --idle-timeout -1s", 2, "--idle-timeout"},
		{"client " + client + " --log-level loud", 2, "--log-level"},
		{"client " + client + " --drain soon", 2, "drain"},
		{"server " + client, 2, "--client-control-address"},
		{"server " + client + " --client-control-address 127.0.0.1 --client-control-port 0", 2, "--client-control-port"},
		{"server " + client + " --client-control-address 127.0.0.1 --allowed-servers everywhere", 2, "--allowed-servers"},
		{"server " + client + " --client-control-address 127.0.0.1 --denied-server-ports http", 2, "--denied-server-ports"},
		{"control", 2, "prepare"},
		{"control list " + client, 2, "--server-control-port"},
		{"control delete " + client + " --server-control-port 1 x", 2, "x"},
		{"expose", 2, "PORT[:PORT-IN-CLUSTER]... is missing: want berg-tunnel expose PORT[:PORT-IN-CLUSTER]... [flags], see berg-tunnel expose --help"},
		{"expose web", 2, "want PORT or PORT:PORT-IN-CLUSTER"},
		{"expose 0", 2, "from 1 to 65535"},
		{"expose 8080:0", 2, "from 1 to 65535"},
		{"expose 8080:36672", 2, "choose another port"},
		{"expose 8080 8080:80", 2, "twice"},
		{"expose 8080 9090:8080", 2, "twice"},
		{"expose 8080 --as Laptop", 2, "--as"},
		{"expose 8080", 2, "--image"},
		{"expose 8080 --image x --log-level loud", 2, "--log-level"},
		{"expose 8080 --image x --kubeconfig /does/not/exist", 2, "/does/not/exist"},
		{"certificates", 2, "--output"},
		{"certificates --output x --validity 1s", 2, "--validity"},
		{"client " + client + " --client-control-address 127.0.0.1 --client-control-port " + port, 4, "in use"},
		{"server " + client + " --connect-timeout 200ms --client-control-address 127.0.0.1 --client-control-port 1", 4, "127.0.0.1:1"},
		{"control list " + client + " --server-control-port 1", 1, "127.0.0.1:1"},
		{"--help", 0, "Exit codes"},
		{"client --help", 0, "--max-opening"},
		{"--version", 0, "berg-tunnel version v"},
		{"--version", 0, "v0.0.0-dev"},
	} {
		t.Run(c.args, func(t *testing.T) {
			said, code := says(t, strings.Fields(c.args)...)
			if code != c.code || !strings.Contains(said, c.tells) {
				t.Errorf("exit code %d, %q: want %d, and a message with %q", code, said, c.code, c.tells)
			}
		})
	}
}

// Every flag is in the manual, with its default.
func TestTheManualNamesEveryFlag(t *testing.T) {
	page, err := os.ReadFile("../../docs/tunnel/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range command.New("v", io.Discard, io.Discard).Commands() {
		if c.Name() != "client" && c.Name() != "server" {
			continue
		}
		for line := range strings.Lines(c.LocalFlags().FlagUsages()) {
			name := strings.Trim(strings.Fields(line)[0], "-")
			if flag := c.Flags().Lookup(name); name != "help" && flag != nil && !strings.Contains(string(page), fmt.Sprintf("`--%s`", name)) {
				t.Errorf("docs/tunnel/proxy.md says nothing of --%s of %s", name, c.Name())
			}
		}
	}
	for _, code := range []int{command.ExitOK, command.ExitFailed, command.ExitUsage, command.ExitPeerGone, command.ExitNotStarted} {
		if !strings.Contains(string(page), fmt.Sprintf("\n| %d |", code)) {
			t.Errorf("docs/tunnel/proxy.md says nothing of exit code %d", code)
		}
	}
}
