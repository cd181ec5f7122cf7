package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestMarkOf(t *testing.T) {
	const dir = "/var/clusters/a"
	for _, tc := range []struct {
		name      string
		environ   []string
		component string
		ours      bool
	}{
		{"ours", []string{"PATH=/bin", markCluster + "=" + dir, markComponent + "=etcd"}, "etcd", true},
		{"ours, without a component", []string{markCluster + "=" + dir}, "", true},
		{"another cluster's", []string{markCluster + "=/var/clusters/b", markComponent + "=etcd"}, "", false},
		{"a longer name", []string{markCluster + "=" + dir + "b"}, "", false},
		{"a directory below", []string{markCluster + "=" + dir + "/etcd"}, "", false},
		{"a variable that only ends alike", []string{"X_" + markCluster + "=" + dir}, "", false},
		{"the mark in a value", []string{"NOTE=" + markCluster + "=" + dir}, "", false},
		{"a zombie's", nil, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			component, ours := markOf([]byte(strings.Join(tc.environ, "\x00")+"\x00"), dir)
			if component != tc.component || ours != tc.ours {
				t.Errorf("got %q, %v; want %q, %v", component, ours, tc.component, tc.ours)
			}
		})
	}
}

func TestParseSession(t *testing.T) {
	for stat, want := range map[string]int{
		"4711 (kubelet) S 1 4700 4699 0 -1 4194560 0":      4699,
		"4711 (a) R 9 9 (strange) S 1 4700 4699 0 -1 4194": 4699,
		"":          0,
		"4711 (cut": 0,
	} {
		if got := parseSession([]byte(stat)); got != want {
			t.Errorf("session in %q: got %d, want %d", stat, got, want)
		}
	}
}

// The session of the test itself says nothing: its leader may live outside of this
// process namespace, where the kernel reports 0.
func TestSessionOfALeader(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if got := sessionOf(pid); got != pid {
		t.Errorf("got %d for the leader of a session, want its own id %d", got, pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := sessionOf(pid); got != 0 {
		t.Errorf("got %d for a process that is gone, want 0", got)
	}
}

//nolint:dupword // type and source of a mount may be the same word
const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - tmpfs tmpfs rw,mode=755
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime shared:5 master:2 - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
50 27 0:40 / /c/a/kubelet/pods/x rw - tmpfs tmpfs rw
51 27 0:41 / /c/a/kubelet rw - tmpfs tmpfs rw
52 51 0:42 / /c/a/kubelet rw - tmpfs tmpfs rw
53 27 0:43 / /c/ab rw - tmpfs tmpfs rw
54 27 0:44 / /c/a/with\040blank\134 rw - tmpfs tmpfs rw
not a line of mountinfo
`

func TestParseMounts(t *testing.T) {
	all := parseMounts(mountinfo)
	if len(all) != 9 {
		t.Fatalf("%d mounts, want 9: %+v", len(all), all)
	}
	if got, want := all[2], (mount{point: "/sys/fs/cgroup/cpuset", kind: "cgroup", options: "rw,cpuset"}); got != want {
		t.Errorf("with optional fields: got %+v, want %+v", got, want)
	}
	if got, want := all[8].point, `/c/a/with blank\`; got != want {
		t.Errorf("escapes: got %q, want %q", got, want)
	}
}

func TestMountsBelow(t *testing.T) {
	got := mountsBelow(parseMounts(mountinfo), "/c/a")
	want := []string{"/c/a/kubelet/pods/x", `/c/a/with blank\`, "/c/a/kubelet", "/c/a/kubelet"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseLockHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  READ  11 fe:00:77 128 128
2: FLOCK  ADVISORY  WRITE 22 fe:00:77 0 EOF
2: -> FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF
3: FLOCK  ADVISORY  WRITE 44 fe:00:777 0 EOF
4: FLOCK  ADVISORY  WRITE 0 08:01:88 0 EOF
`
	for _, tc := range []struct {
		device, inode uint64
		want          int
	}{
		{0xfe00, 77, 22},
		{0xfe00, 777, 44},
		{0xfe01, 77, 0},
		{0x0801, 88, 0}, // held in another process namespace
	} {
		if got := parseLockHolder(locks, tc.device, tc.inode); got != tc.want {
			t.Errorf("holder of %x:%d: got %d, want %d", tc.device, tc.inode, got, tc.want)
		}
	}
}

func TestLockDirectory(t *testing.T) {
	dir := t.TempDir()
	first, _, err := lockDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, holder, err := lockDirectory(dir)
	if !errors.Is(err, errLocked) {
		t.Fatalf("a second lock: got %v, want %v", err, errLocked)
	}
	if holder != os.Getpid() {
		t.Errorf("holder: got %d, want this process, %d", holder, os.Getpid())
	}
	first.release()
	second, _, err := lockDirectory(dir)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	second.release()
}

func TestPickPorts(t *testing.T) {
	everything := func(int) bool { return true }
	taken := map[int]bool{}
	for range 200 {
		base, err := pickPorts(taken, everything)
		if err != nil {
			t.Fatal(err)
		}
		if taken[base] {
			t.Fatalf("%d was given twice", base)
		}
		if base < firstPort || base+portsPerCluster-1 > lastPort || (base-firstPort)%portsPerCluster != 0 {
			t.Fatalf("%d is not the beginning of a block", base)
		}
		taken[base] = true
	}

	const only = firstPort + 5*portsPerCluster
	base, err := pickPorts(nil, func(port int) bool { return port >= only && port < only+portsPerCluster })
	if err != nil || base != only {
		t.Errorf("with one free block: got %d, %v, want %d", base, err, only)
	}
	if _, err := pickPorts(nil, func(port int) bool { return port%portsPerCluster != 3 }); err == nil {
		t.Error("no error although no block is free as a whole")
	}
}

func TestPortFree(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if portFree(port) {
		t.Error("a port that is listened on counts as free")
	}
	l.Close()
	if !portFree(port) {
		t.Error("a closed port does not count as free")
	}
}

func TestPickSubnet(t *testing.T) {
	var addresses []net.Addr
	add := func(cidr string) {
		ip, network, err := net.ParseCIDR(cidr)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, &net.IPNet{IP: ip, Mask: network.Mask})
	}
	want := func(n int) {
		t.Helper()
		if got, err := pickSubnet(addresses); err != nil || got != n {
			t.Errorf("got %d, %v, want %d", got, err, n)
		}
	}
	add("192.0.2.2/24")
	add("::1/128")
	want(0)
	add("198.18.0.1/30")
	want(1)
	add("198.18.1.77/32")
	want(2)
	add("198.18.2.1/23")
	want(4)
	add("198.18.0.9/16")
	if _, err := pickSubnet(addresses); err == nil {
		t.Error("no error although the whole range is in use")
	}
}

func TestNamesOutsideTheStateDirectory(t *testing.T) {
	a, b := "/home/a/clusters/berg", "/home/b/clusters/berg"
	if nodeID(a, "berg") == nodeID(b, "berg") || linkName(a) == linkName(b) {
		t.Error("clusters of one name in two places are not told apart")
	}
	if n := len(linkName(a)); n > 15 {
		t.Errorf("a link's name has %d characters, Linux takes 15", n)
	}
}

func TestKeyFollowsTheSources(t *testing.T) {
	components := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		file := filepath.Join(components, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := places{components: components}
	last := ""
	key := func(part *part) string {
		t.Helper()
		key, err := p.key(t.Context(), part)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	changed := func(what string, want bool) {
		t.Helper()
		now := key(imageTool)
		if (now != last) != want {
			t.Errorf("%s: key changed: %v, want %v", what, now != last, want)
		}
		last = now
	}
	write("image/go.mod", "module image\n")
	write("image/main.go", "package main\n")
	last = key(imageTool)
	changed("nothing", false)
	write("image/main_test.go", "package main\n")
	changed("a test", false)
	write("image/README.md", "# image\n")
	changed("prose", false)
	write("image/main.go", "package main // changed\n")
	changed("a source", true)
	write("image/go.mod", "module image\n\ngo 1.26\n")
	changed("go.mod", true)
	write("image/pause/main.go", "package main\n")
	changed("a source in a folder", true)
	// The same bytes, cut differently between two files.
	write("image/a", "xy")
	write("image/b", "")
	last = key(imageTool)
	write("image/a", "x")
	write("image/b", "y")
	changed("content moved from one file to the next", true)

	other := *imageTool
	other.recipe = "otherwise"
	if key(&other) == key(imageTool) {
		t.Error("another recipe has the same key")
	}
}

func TestPoll(t *testing.T) {
	calls := 0
	err := poll(t.Context(), func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil || calls != 3 {
		t.Errorf("got %v after %d calls", err, calls)
	}
	calls = 0
	final := errors.New("never")
	err = poll(t.Context(), func(context.Context) error { calls++; return &finalError{final} })
	if !errors.Is(err, final) || calls != 1 {
		t.Errorf("a final error: got %v after %d calls", err, calls)
	}
}

func TestTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	var log strings.Builder
	for i := range 100 {
		log.WriteString("line " + strconv.Itoa(i) + "\n")
	}
	log.WriteString(strings.Repeat("x", 5000) + "\n")
	if err := os.WriteFile(file, []byte(log.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(tail(file, 3), "\n")
	if len(lines) != 3 || lines[0] != "  line 98" || len(lines[2]) > 400 {
		t.Errorf("got %q", lines)
	}
	if got := tail(file+".none", 3); got != "(nothing logged)" {
		t.Errorf("without a log: %q", got)
	}
}
