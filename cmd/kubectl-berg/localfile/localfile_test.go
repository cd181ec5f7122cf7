package localfile_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
)

func TestRead(t *testing.T) {
	above := t.TempDir()
	folder := filepath.Join(above, "folder")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(folder, "below"), 0o700))
	must(os.WriteFile(filepath.Join(above, "outside"), []byte("outside"), 0o600))
	must(os.WriteFile(filepath.Join(folder, "below", "inside"), []byte("inside"), 0o600))
	must(os.WriteFile(filepath.Join(folder, "large"), make([]byte, localfile.MaxSize+1), 0o600))
	must(syscall.Mkfifo(filepath.Join(folder, "pipe"), 0o600))
	for name, target := range map[string]string{"link-outside": "../outside", "link-device": "/dev/zero", "link-inside": "below/inside", "link-folder": "..", "link-nowhere": "nowhere"} {
		must(os.Symlink(target, filepath.Join(folder, name)))
	}
	limited, err := localfile.Within(folder)
	must(err)
	for name, want := range map[string]string{
		"below/inside": "inside", "link-inside": "inside", "../outside": "outside of " + folder, "link-outside": "outside of", "link-folder/outside": "outside of",
		"link-device": "outside of", "pipe": "no regular file", "large": "larger than 4 MiB", "below": "it is a folder",
	} {
		content, err := limited.Read(filepath.Join(folder, name))
		if got := string(content); got != want && (!errors.Is(err, localfile.ErrRefused) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, want := range map[string]string{"../outside": "outside", "link-folder/outside": "outside", "link-device": "no regular file", "pipe": "no regular file"} {
		content, err := localfile.Folder{}.Read(filepath.Join(folder, name))
		if got := string(content); got != want && (!errors.Is(err, localfile.ErrRefused) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s without a limit: %q, %v", name, got, err)
		}
	}
	if _, err := limited.Read(filepath.Join(folder, "link-nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link to nowhere: %v", err)
	}
}

type endless struct{}

func (endless) Read(into []byte) (int, error) { return len(into), nil }

func TestReadAllEnds(t *testing.T) {
	if _, err := localfile.ReadAll(endless{}); !errors.Is(err, localfile.ErrRefused) {
		t.Errorf("endless: %v", err)
	}
	if content, err := localfile.ReadAll(io.LimitReader(endless{}, localfile.MaxSize)); err != nil || len(content) != localfile.MaxSize {
		t.Errorf("%d bytes, %v", len(content), err)
	}
}
