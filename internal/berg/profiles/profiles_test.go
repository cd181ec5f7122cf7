package profiles

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, folder, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, folder, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestInstall(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write(t, from, "a.json", `{"a":1}`)
	write(t, from, "README", "no profile")
	write(t, to, "foreign.json", "of another program")
	// As one that was interrupted leaves it.
	write(t, to, temporary+"a.json", "half")
	run := func(want string) {
		t.Helper()
		var said bytes.Buffer
		if code := Run([]string{from, to}, &said); code != 0 || said.String() != want {
			t.Fatalf("code %d: %s, want %s", code, said.String(), want)
		}
	}
	run("a.json was installed\n")
	if got := read(t, to, "a.json"); got != `{"a":1}` {
		t.Errorf("installed: %s", got)
	}
	before, err := os.Stat(filepath.Join(to, "a.json"))
	if err != nil {
		t.Fatal(err)
	}
	if before.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", before.Mode())
	}

	run("a.json is up to date\n")
	after, err := os.Stat(filepath.Join(to, "a.json"))
	if err != nil || !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Errorf("an equal profile was written: %v, %v", after, err)
	}

	write(t, from, "a.json", `{"a":2}`)
	run("a.json was installed\n")
	if got := read(t, to, "a.json"); got != `{"a":2}` {
		t.Errorf("updated: %s", got)
	}
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != 2 || read(t, to, "foreign.json") != "of another program" {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// A link in the folder must not lead to another file of the node.
func TestInstallFollowsNoLink(t *testing.T) {
	from, to, other := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, from, "a.json", `{}`)
	write(t, other, "file", "of the node")
	if err := os.Symlink(filepath.Join(other, "file"), filepath.Join(to, "a.json")); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if code := Run([]string{from, to}, &said); code != 0 {
		t.Fatalf("code %d: %s", code, said.String())
	}
	if got := read(t, other, "file"); got != "of the node" {
		t.Errorf("the file of the node became %s", got)
	}
	if info, err := os.Lstat(filepath.Join(to, "a.json")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
}

func TestRefusals(t *testing.T) {
	from, to, empty := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, from, "a.json", "{")
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"one folder":   {[]string{from}, 2, "usage"},
		"no profile":   {[]string{empty, to}, 1, "has no profile"},
		"no JSON":      {[]string{from, to}, 1, "is not JSON"},
		"no such node": {[]string{from, filepath.Join(to, "absent")}, 1, "open the kubelet's folder"},
	} {
		var said bytes.Buffer
		if code := Run(tc.args, &said); code != tc.code || !strings.Contains(said.String(), tc.says) {
			t.Errorf("%s: code %d: %s", name, code, said.String())
		}
	}
	if entries, err := os.ReadDir(to); err != nil || len(entries) > 0 {
		t.Errorf("a refused profile left %v, %v", entries, err)
	}
}
