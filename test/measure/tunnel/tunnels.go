package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bergctf/berg-operator/test/measure/machine"
)

// tunnel is one of those that are compared: where clients connect to, and its processes.
type tunnel struct {
	name string
	at   string
	cmds []*exec.Cmd
	// find finds processes that were started by others, as sshd's are.
	find func() []int
	// carriers find those that do other work as well: of their memory counts what is more than had.
	carriers func() []int
	had      int64
}

func (t *tunnel) pids() (all []int) {
	for _, c := range t.cmds {
		all = append(all, c.Process.Pid)
	}
	if t.find != nil {
		all = append(all, t.find()...)
	}
	return all
}

func (t *tunnel) memory() (sum int64, err error) {
	all := t.pids()
	if t.carriers != nil {
		all = append(all, t.carriers()...)
	}
	sum, err = memoryOf(all)
	return sum - t.had, err
}

// carriedBy counts in what the processes of these names hold more than now.
func (t *tunnel) carriedBy(names ...string) (err error) {
	t.carriers = func() []int { return called(names) }
	t.had, err = memoryOf(t.carriers())
	return err
}

func memoryOf(pids []int) (sum int64, err error) {
	for _, pid := range pids {
		m, err := machine.ReadMemory(pid)
		if err != nil {
			return 0, err
		}
		sum += int64(m.Anonymous)
	}
	return sum, nil
}

func (t *tunnel) stop() {
	for i := len(t.cmds) - 1; i >= 0; i-- {
		c := t.cmds[i]
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		timer := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
		_ = c.Wait()
		timer.Stop()
	}
	t.cmds = nil
}

// kill ends its processes immediately; stop waits for them.
func (t *tunnel) kill() {
	for _, c := range t.cmds {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
}

// bench is what starts tunnels: where programs are, and where the server is.
type bench struct {
	ctx      context.Context
	self     string
	berg     string
	tools    string
	dir      string
	server   int
	kubectl  []string
	podImage string
}

// way starts one kind of tunnel.
type way struct {
	name string
	// what people should know of it when they read its figures.
	note  string
	start func(*bench, *tunnel) error
}

var (
	// errMissing: the program is not there.
	errMissing = errors.New("it is not installed")
	// errNotAsked: there is no cluster, so the measurement was not requested.
	errNotAsked = errors.New("there is no cluster")
)

var ways = []way{
	{"direct", "no tunnel", func(b *bench, t *tunnel) error {
		t.at = address(b.server)
		return nil
	}},
	{"bare TCP relay", "two hops that only copy; the kernel does it", func(b *bench, t *tunnel) error { return b.relays(t, false) }},
	{"bare TLS relay", "two hops that only copy, with our TLS between them", func(b *bench, t *tunnel) error { return b.relays(t, true) }},
	{"berg-tunnel", "mutual TLS", (*bench).bergTunnel},
	{"ssh -R", "Debian's OpenSSH", (*bench).ssh},
	{"chisel", "SSH over WebSocket, without TLS", (*bench).chisel},
	{"frp", "its defaults: TLS, multiplexed", (*bench).frp},
	{"rathole, noise", "encrypted", func(b *bench, t *tunnel) error { return b.rathole(t, true) }},
	{"rathole, plain", "not encrypted", func(b *bench, t *tunnel) error { return b.rathole(t, false) }},
	{"kubectl port-forward", "the other direction, through API server and kubelet", (*bench).portForward},
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePort returns a port that is free at the moment.
func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err) // there is no loopback
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// run starts a program of a tunnel.
func (b *bench) run(t *tunnel, program string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(b.dir, strings.ReplaceAll(t.name, " ", "-")+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.CommandContext(b.ctx, program, args...)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return err
	}
	t.cmds = append(t.cmds, c)
	return nil
}

// waitPort waits until a process listens.
func waitPort(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		c, err := net.Dial("tcp", at)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no process listens at %s: %w", at, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// works waits until bytes come back through a tunnel.
func (t *tunnel) works(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		c, err := open(t.at, repeatAfterMe)
		if err == nil {
			_ = c.SetDeadline(time.Now().Add(2 * time.Second))
			if _, err = c.Write([]byte{7}); err == nil {
				_, err = io.ReadFull(c, make([]byte, 1))
			}
			_ = c.Close()
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing comes back: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (b *bench) relays(t *tunnel, secure bool) error {
	front, back := freePort(), freePort()
	t.at = address(front)
	var one, two []string
	if secure {
		one = []string{"--secure-out", "--tls-dir", filepath.Join(b.dir, "pair/server")}
		two = []string{"--secure-in", "--tls-dir", filepath.Join(b.dir, "pair/client")}
	}
	if err := b.run(t, b.self, append([]string{"relay", "--listen", address(back), "--to", address(b.server)}, two...)...); err != nil {
		return err
	}
	if err := waitPort(b.ctx, address(back)); err != nil {
		return err
	}
	return b.run(t, b.self, append([]string{"relay", "--listen", address(front), "--to", address(back)}, one...)...)
}

func (b *bench) bergTunnel(t *tunnel) error {
	front, control, data, calls := freePort(), freePort(), freePort(), freePort()
	t.at = address(front)
	port := strconv.Itoa
	if err := b.run(t, b.berg, "client", "--tls-dir", filepath.Join(b.dir, "pair/client"),
		"--client-control-address", "127.0.0.1", "--client-control-port", port(control),
		"--client-data-address", "127.0.0.1", "--client-data-port", port(data)); err != nil {
		return err
	}
	if err := b.run(t, b.berg, "server", "--tls-dir", filepath.Join(b.dir, "pair/server"),
		"--client-control-address", "127.0.0.1", "--client-control-port", port(control),
		"--client-data-port", port(data), "--server-control-address", "127.0.0.1", "--server-control-port", port(calls)); err != nil {
		return err
	}
	if err := waitPort(b.ctx, address(calls)); err != nil {
		return err
	}
	said, err := exec.CommandContext(b.ctx, b.berg, "control", "prepare", "--tls-dir", filepath.Join(b.dir, "pair/controller"),
		"--server-control-port", port(calls), "--name", "bench", "--server-port", port(b.server),
		"--client-proxy-address", "127.0.0.1", "--client-proxy-port", port(front)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("prepare: %w: %s", err, said)
	}
	return nil
}

// ssh starts a server of its own, which knows one key.
func (b *bench) ssh(t *tunnel) error {
	sshd := "/usr/sbin/sshd"
	if _, err := os.Stat(sshd); err != nil {
		return errMissing
	}
	front, port := freePort(), freePort()
	t.at = address(front)
	dir := filepath.Join(b.dir, "ssh")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, key := range []string{"host", "user"} {
		path := filepath.Join(dir, key)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if said, err := exec.CommandContext(b.ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput(); err != nil {
			return fmt.Errorf("ssh-keygen: %w: %s", err, said)
		}
	}
	// sshd wants this folder where it separates its rights.
	_ = os.MkdirAll("/run/sshd", 0o755)
	config := fmt.Sprintf("ListenAddress 127.0.0.1:%d\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nPidFile none\nUsePAM no\nStrictModes no\nAllowTcpForwarding yes\nPermitRootLogin yes\nMaxStartups 1000\nMaxSessions 10000\n", port, dir, dir)
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600); err != nil {
		return err
	}
	if err := b.run(t, sshd, "-D", "-e", "-f", filepath.Join(dir, "config")); err != nil {
		return err
	}
	daemon := t.cmds[0].Process.Pid
	t.find = func() []int { return descendants(daemon) }
	if err := waitPort(b.ctx, address(port)); err != nil {
		return err
	}
	return b.run(t, "ssh", "-N", "-F", "none", "-i", filepath.Join(dir, "user"), "-p", strconv.Itoa(port),
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ExitOnForwardFailure=yes",
		"-R", fmt.Sprintf("127.0.0.1:%d:127.0.0.1:%d", front, b.server), "127.0.0.1")
}

// descendants returns the processes below one.
func descendants(of int) (all []int) {
	read, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", of, of))
	for _, field := range strings.Fields(string(read)) {
		if pid, err := strconv.Atoi(field); err == nil {
			all = append(append(all, pid), descendants(pid)...)
		}
	}
	return all
}

// called returns the processes of these names.
func called(names []string) (all []int) {
	read, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range read {
		name, err := os.ReadFile(path)
		if err != nil || !slices.Contains(names, strings.TrimSpace(string(name))) {
			continue // it may have ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

func (b *bench) tool(name string) (string, error) {
	path := filepath.Join(b.tools, name)
	if _, err := os.Stat(path); err != nil {
		return "", errMissing
	}
	return path, nil
}

func (b *bench) chisel(t *tunnel) error {
	chisel, err := b.tool("chisel")
	if err != nil {
		return err
	}
	front, port := freePort(), freePort()
	t.at = address(front)
	if err := b.run(t, chisel, "server", "--reverse", "--host", "127.0.0.1", "--port", strconv.Itoa(port)); err != nil {
		return err
	}
	if err := waitPort(b.ctx, address(port)); err != nil {
		return err
	}
	return b.run(t, chisel, "client", "http://"+address(port), fmt.Sprintf("R:127.0.0.1:%d:127.0.0.1:%d", front, b.server))
}

func (b *bench) frp(t *tunnel) error {
	frps, err := b.tool("frps")
	if err != nil {
		return err
	}
	frpc, err := b.tool("frpc")
	if err != nil {
		return err
	}
	front, port := freePort(), freePort()
	t.at = address(front)
	server, client := filepath.Join(b.dir, "frps.toml"), filepath.Join(b.dir, "frpc.toml")
	if err := errors.Join(
		os.WriteFile(server, fmt.Appendf(nil, "bindAddr = \"127.0.0.1\"\nproxyBindAddr = \"127.0.0.1\"\nbindPort = %d\n", port), 0o600),
		os.WriteFile(client, fmt.Appendf(nil, "serverAddr = \"127.0.0.1\"\nserverPort = %d\n[[proxies]]\nname = \"bench\"\ntype = \"tcp\"\nlocalIP = \"127.0.0.1\"\nlocalPort = %d\nremotePort = %d\n", port, b.server, front), 0o600),
	); err != nil {
		return err
	}
	if err := b.run(t, frps, "-c", server); err != nil {
		return err
	}
	if err := waitPort(b.ctx, address(port)); err != nil {
		return err
	}
	return b.run(t, frpc, "-c", client)
}

func (b *bench) rathole(t *tunnel, noise bool) error {
	rathole, err := b.tool("rathole")
	if err != nil {
		return err
	}
	front, port := freePort(), freePort()
	t.at = address(front)
	var serverTransport, clientTransport string
	if noise {
		keys, err := exec.CommandContext(b.ctx, rathole, "--genkey").Output()
		if err != nil {
			return fmt.Errorf("make keys: %w", err)
		}
		// Private Key:\n…\n\nPublic Key:\n…
		fields := strings.Fields(string(keys))
		if len(fields) != 6 {
			return fmt.Errorf("make keys: %d words, want 6", len(fields))
		}
		serverTransport = fmt.Sprintf("[server.transport]\ntype = \"noise\"\n[server.transport.noise]\nlocal_private_key = %q\n", fields[2])
		clientTransport = fmt.Sprintf("[client.transport]\ntype = \"noise\"\n[client.transport.noise]\nremote_public_key = %q\n", fields[5])
	}
	server, client := filepath.Join(b.dir, "rathole-server.toml"), filepath.Join(b.dir, "rathole-client.toml")
	if err := errors.Join(
		os.WriteFile(server, fmt.Appendf(nil, "[server]\nbind_addr = %q\ndefault_token = \"bench\"\n%s[server.services.bench]\nbind_addr = %q\n", address(port), serverTransport, address(front)), 0o600),
		os.WriteFile(client, fmt.Appendf(nil, "[client]\nremote_addr = %q\ndefault_token = \"bench\"\n%s[client.services.bench]\nlocal_addr = %q\n", address(port), clientTransport, address(b.server)), 0o600),
	); err != nil {
		return err
	}
	if err := b.run(t, rathole, "--server", server); err != nil {
		return err
	}
	if err := waitPort(b.ctx, address(port)); err != nil {
		return err
	}
	return b.run(t, rathole, "--client", client)
}

// portForward lets this program run in a pod of a cluster whose node is this machine, and forwards
// a port to it.
func (b *bench) portForward(t *tunnel) error {
	if os.Getenv("KUBECONFIG") == "" || len(b.kubectl) == 0 {
		return errNotAsked
	}
	kubectl := func(input string, args ...string) error {
		c := exec.CommandContext(b.ctx, b.kubectl[0], append(b.kubectl[1:], args...)...)
		c.Stdin = strings.NewReader(input)
		if said, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl %s: %w: %s", args[0], err, said)
		}
		return nil
	}
	pod, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "berg-tunnel-bench", "namespace": "default"},
		"spec": map[string]any{
			"terminationGracePeriodSeconds": 0,
			"containers": []any{map[string]any{
				"name": "server", "image": b.podImage, "command": []string{"/bench/" + filepath.Base(b.self), "serve", "--listen", ":9000"},
				"volumeMounts": []any{map[string]any{"name": "bench", "mountPath": "/bench", "readOnly": true}},
			}},
			"volumes": []any{map[string]any{"name": "bench", "hostPath": map[string]any{"path": filepath.Dir(b.self)}}},
		},
	})
	if err != nil {
		return err
	}
	if err := kubectl("", "delete", "pod", "-n", "default", "--ignore-not-found", "--now", "berg-tunnel-bench"); err != nil {
		return err
	}
	if err := kubectl(string(pod), "create", "-f", "-"); err != nil {
		return err
	}
	if err := kubectl("", "wait", "-n", "default", "--for=condition=Ready", "--timeout=60s", "pod/berg-tunnel-bench"); err != nil {
		return err
	}
	if err := t.carriedBy("kube-apiserver", "kubelet", "containerd"); err != nil {
		return err
	}
	front := freePort()
	t.at = address(front)
	return b.run(t, b.kubectl[0], append(b.kubectl[1:], "port-forward", "-n", "default", "pod/berg-tunnel-bench", fmt.Sprintf("%d:9000", front))...)
}
