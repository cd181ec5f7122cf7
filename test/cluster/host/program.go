// Package host is the Linux machine that clusters run on: its programs and packages, its mounts and control groups.
package host

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Run runs a command line without quotes, in the system's own environment and these variables.
func Run(ctx context.Context, command string, env ...string) error {
	words := strings.Fields(command)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append([]string{"PATH=" + Path}, env...)
	// LookPath has searched the PATH of the user, which need not hold /usr/sbin.
	if path := Find(words[0]); path != "" {
		cmd.Path, cmd.Err = path, nil
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Find looks a program up where a system keeps them.
func Find(name string) string {
	for _, dir := range filepath.SplitList(Path) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// Packages are those of Debian that hold programs of the distribution, each with what is needed of it: the name of
// a program, or the absolute path of a file.
type Packages map[string][]string

// Missing returns the packages of which anything is missing here, in alphabetical order.
func (p Packages) Missing() []string {
	var missing []string
	for name, needed := range p {
		if slices.ContainsFunc(needed, func(path string) bool { return !there(path) }) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

func there(path string) bool {
	if filepath.IsAbs(path) {
		_, err := os.Stat(path)
		return err == nil
	}
	return Find(path) != ""
}

// Path is the PATH of the system, independent of that of the user.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
