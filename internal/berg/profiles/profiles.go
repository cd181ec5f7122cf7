package profiles

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// Command is the argument that makes the operator's program this one.
const Command = "seccomp-profiles"

// readable: the container runtime may be another user than root.
const readable = 0o644

// temporary is the prefix of files that are not whole yet.
const temporary = ".berg-seccomp-"

// Run copies the profiles of one folder into another, and returns the exit code: seccomp-profiles FROM TO. Without folders it
// waits for SIGTERM.
func Run(args []string, stderr io.Writer) int {
	switch len(args) {
	case 0:
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
		<-asked
		return 0
	case 2:
		if err := install(args[0], args[1], stderr); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		return 0
	default:
		fmt.Fprintf(stderr, "usage: %s [FROM TO]\n", Command)
		return 2
	}
}

// install writes each profile that is missing or differs. All other files stay.
func install(from, to string, log io.Writer) error {
	names, err := filepath.Glob(filepath.Join(from, "*.json"))
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no profile: a file whose name ends in .json", from)
	}
	// Links below the folder must not lead out of the folder.
	folder, err := os.OpenRoot(to)
	if err != nil {
		return fmt.Errorf("open the kubelet's folder of profiles: %w", err)
	}
	defer func() { _ = folder.Close() }()
	for _, path := range names {
		profile, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		if !json.Valid(profile) {
			return fmt.Errorf("%s is not JSON: the kubelet would start no pod with it", path)
		}
		written, err := update(folder, name, profile)
		if err != nil {
			return fmt.Errorf("install the profile %s: %w", name, err)
		}
		result := "is up to date"
		if written {
			result = "was installed"
		}
		fmt.Fprintf(log, "%s %s\n", name, result)
	}
	return nil
}

// update replaces a file whose content differs. A pod that starts at the same time reads the old one or the new one.
func update(folder *os.Root, name string, content []byte) (written bool, err error) {
	current, err := folder.ReadFile(name)
	switch {
	case err == nil && bytes.Equal(current, content):
		return false, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !isSymlink(folder, name):
		return false, err
	}
	draft := temporary + strings.TrimPrefix(name, ".")
	// One that was interrupted may have left it.
	if err := folder.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	file, err := folder.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_EXCL, readable)
	if err != nil {
		return false, err
	}
	_, err = file.Write(content)
	// Chmod is not subject to the umask.
	if err = errors.Join(err, file.Chmod(readable), file.Sync(), file.Close()); err != nil {
		return false, errors.Join(err, folder.Remove(draft))
	}
	return true, folder.Rename(draft, name)
}

// isSymlink reports whether a name is a link, which is replaced and not followed out of the folder.
func isSymlink(folder *os.Root, name string) bool {
	info, err := folder.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}
