package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// largestFile is larger than the largest file of the repository, deploy/install.yaml, and smaller than any program.
const largestFile = 1 << 20

func TestNoProgramIsCommitted(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("this is not a checkout:", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(output), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > largestFile {
			t.Errorf("%s has %d bytes: a program or data that make builds is not committed", name, info.Size())
		}
	}
}
