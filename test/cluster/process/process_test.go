package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

func TestTailSaysWhatToRaise(t *testing.T) {
	for text, want := range map[string]string{
		"E1 inotify_init: too many open files\n":  "fs.inotify.max_user_instances",
		"open /etc/hosts: too many open files\n":  "",
		"created the inotify watch of a folder\n": "",
	} {
		file := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := Tail(file, 8)
		if !strings.Contains(got, strings.TrimSpace(text)) || strings.Contains(got, "sysctl") != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}
