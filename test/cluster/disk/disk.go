// Package disk knows where the runner keeps what it builds and what clusters leave, and how several runners share that:
// files are replaced atomically, directories are locked.
package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// CopyFile copies a file's content, and makes the directory for it.
func CopyFile(dst, src string) error {
	content, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	return os.WriteFile(dst, content, 0o644)
}

// Exists tells whether there is anything at a path.
func Exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// CopyTree copies the files of a directory, writable, without those of the named directories at its top.
func CopyTree(dst, src string, without ...string) error {
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(src, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(without, name):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		return CopyFile(filepath.Join(dst, name), path)
	})
}

// WriteFile replaces a file atomically: a process that is killed in between leaves the old one or the new one.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
