package process

import (
	"os"
	"os/exec"
	"path/filepath"
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
		{"ours", []string{"PATH=/bin", MarkCluster + "=" + dir, MarkComponent + "=etcd"}, "etcd", true},
		{"ours, without a component", []string{MarkCluster + "=" + dir}, "", true},
		{"another cluster's", []string{MarkCluster + "=/var/clusters/b", MarkComponent + "=etcd"}, "", false},
		{"a longer name", []string{MarkCluster + "=" + dir + "b"}, "", false},
		{"a directory below", []string{MarkCluster + "=" + dir + "/etcd"}, "", false},
		{"a variable that only ends alike", []string{"X_" + MarkCluster + "=" + dir}, "", false},
		{"the mark in a value", []string{"NOTE=" + MarkCluster + "=" + dir}, "", false},
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
	lines := strings.Split(Tail(file, 3), "\n")
	if len(lines) != 3 || lines[0] != "  line 98" || len(lines[2]) > 400 {
		t.Errorf("got %q", lines)
	}
	if got := Tail(file+".none", 3); got != "(nothing logged)" {
		t.Errorf("without a log: %q", got)
	}
}

func TestAProcessIsFoundWhileItsProgramIsLoaded(t *testing.T) {
	dir := t.TempDir()
	// A shell without an environment becomes a component.
	pid := startBare(t, dir, "sh", "-c", "sleep 0.2; "+MarkCluster+"="+dir+" "+MarkComponent+"=late exec sleep 60")
	found, err := Of(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].PID != pid || found[0].Component != "late" {
		t.Errorf("found %v, not process %d", found, pid)
	}
}

func TestAProcessWithoutAnEnvironmentIsNobodys(t *testing.T) {
	dir := t.TempDir()
	startBare(t, dir, "sleep", "60")
	if found, err := Of(dir); err != nil || len(found) > 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

// startBare starts a program that works in a directory and has no environment. It ends with the test.
func startBare(t *testing.T, dir, program string, args ...string) (pid int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, []string{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
