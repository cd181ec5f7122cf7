// Package localfile reads files that authors name: regular files of a limited size, and none outside a folder unless the
// user allows it. It never waits for a pipe and never reads a device.
package localfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// MaxSize is the size of the largest file that is read, in bytes. A Challenge has at most 1.5 MiB in etcd.
const MaxSize = 4 << 20

// ErrRefused means that a file exists, and is not read.
var ErrRefused = errors.New("is not read")

// Folder limits files to those in one folder.
type Folder struct {
	name string
	// root is the folder without symbolic links, "" for no limit.
	root string
}

// Within returns the limit to a folder.
func Within(folder string) (Folder, error) {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return Folder{}, fmt.Errorf("find folder: %w", err)
	}
	root, err := filepath.EvalSymlinks(absolute)
	if err != nil {
		return Folder{}, fmt.Errorf("open: %w", err)
	}
	return Folder{folder, root}, nil
}

// Stat returns what a name leads to. Its error is ErrRefused for anything outside the folder. It follows symbolic links, and
// compares where they lead to.
func (f Folder) Stat(name string) (fs.FileInfo, error) {
	absolute, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("find file: %w", err)
	}
	target, err := filepath.EvalSymlinks(absolute)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	if rel, err := filepath.Rel(f.root, target); f.root != "" && (err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator))) {
		return nil, fmt.Errorf("%w: it is outside of %s", ErrRefused, f.name)
	}
	info, err := os.Stat(target)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return info, nil
}

// Read returns the content of a file of at most MaxSize bytes. A file that is replaced between the check and the read is not
// noticed: names are the author's, and so is the folder.
func (f Folder) Read(name string) ([]byte, error) {
	info, err := f.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%w: it is a folder", ErrRefused)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: it is no regular file, but a device, a pipe or a socket", ErrRefused)
	case info.Size() > MaxSize:
		return nil, fmt.Errorf("%w: it is larger than %d MiB", ErrRefused, MaxSize>>20)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	content, err := ReadAll(file)
	return content, errors.Join(err, file.Close())
}

// ReadAll reads at most MaxSize bytes.
func ReadAll(from io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(from, MaxSize+1))
	if err == nil && len(content) > MaxSize {
		err = fmt.Errorf("%w: it is larger than %d MiB", ErrRefused, MaxSize>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return content, nil
}
