package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// operatorPackage is the operator's main package.
const operatorPackage = "github.com/bergctf/berg-operator/cmd/berg-operator"

// Build is the operator's program, built when it is first asked for. The zero value is ready
// to use, also by several goroutines.
type Build struct {
	mu     sync.Mutex
	folder string
}

// Program returns the program's path. A build that failed is tried again at the next call.
func (b *Build) Program(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.folder != "" {
		return b.program(), nil
	}
	folder, err := os.MkdirTemp("", "berg-operator-")
	if err != nil {
		return "", err
	}
	b.folder = folder
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", b.program(), operatorPackage).CombinedOutput(); err != nil {
		_ = os.RemoveAll(folder) // the build's error says more
		b.folder = ""
		return "", fmt.Errorf("build the operator: %w\n%s", err, out)
	}
	return b.program(), nil
}

func (b *Build) program() string { return filepath.Join(b.folder, "manager") }

// Remove removes the program, if there is one.
func (b *Build) Remove() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.folder == "" {
		return nil
	}
	folder := b.folder
	b.folder = ""
	return os.RemoveAll(folder)
}
