package toolbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// cat FILE...: prints the files as they are.
func cat(_ context.Context, streams Streams, files []string) error {
	if len(files) == 0 {
		return errors.New("want FILE, one or more")
	}
	for _, name := range files {
		if err := copyFile(streams.Out, name); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(w io.Writer, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
}

// ls [PATH...]: prints type, octal mode, owner, size and path of each path, and of what is in it if
// it is a directory.
func ls(_ context.Context, streams Streams, paths []string) error {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	for _, path := range paths {
		if err := list(streams.Out, path); err != nil {
			return err
		}
		entries, err := os.ReadDir(path)
		if errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return err
		}
		for _, entry := range entries {
			// Gone between reading the folder and now, as happens in /proc: not listed.
			if err := list(streams.Out, filepath.Join(path, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func list(w io.Writer, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner := "?"
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = fmt.Sprintf("%d:%d", stat.Uid, stat.Gid)
	}
	_, err = fmt.Fprintf(w, "%c %s %s %d %s\n", info.Mode().Type().String()[0], octalMode(info.Mode()), owner, info.Size(), path)
	return err
}

// octalMode is the mode as chmod takes it: Go keeps setuid, setgid and sticky elsewhere.
func octalMode(mode fs.FileMode) string {
	bits := uint32(mode.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return fmt.Sprintf("%04o", bits)
}
