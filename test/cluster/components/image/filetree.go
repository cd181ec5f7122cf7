package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// fileTree is the content of a layer: every path of the image, absolute and cleaned, and what is there.
type fileTree struct {
	nodes map[string]node
}

type node struct {
	kind   byte   // tar.TypeReg, tar.TypeDir or tar.TypeSymlink
	mode   int64  // permission bits including setuid, setgid and sticky
	source string // regular files: where the content is read from
	target string // symbolic links: where they point to
	given  bool   // named by the caller, not made as a parent of something
}

func newFileTree() *fileTree { return &fileTree{nodes: map[string]node{}} }

// add takes SRC:DST[:MODE]. A directory is copied with all it holds; MODE is for its regular files.
// Without MODE a file with an execute bit becomes 0755, every other 0644: the umask of
// the builder must not affect the image.
func (t *fileTree) add(argument string) error {
	parts := strings.Split(argument, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" {
		return errors.New("want SRC:DST or SRC:DST:MODE")
	}
	source, destination := parts[0], parts[1]
	mode := int64(-1)
	if len(parts) == 3 {
		var err error
		if mode, err = parseMode(parts[2]); err != nil {
			return err
		}
	}
	if err := checkDestination(destination); err != nil {
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return t.addFile(source, info, destination, mode)
	}
	return filepath.WalkDir(source, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		target := path.Join(destination, filepath.ToSlash(relative))
		switch entry.Type() {
		case fs.ModeDir:
			return t.put(target, node{kind: tar.TypeDir, mode: 0o755})
		case fs.ModeSymlink:
			link, err := os.Readlink(file)
			if err != nil {
				return err
			}
			return t.put(target, node{kind: tar.TypeSymlink, mode: 0o777, target: link, given: true})
		default:
			info, err := entry.Info()
			if err != nil {
				return err
			}
			return t.addFile(file, info, target, mode)
		}
	})
}

// addDirectory takes PATH[:MODE], mode 0755 if none is given.
func (t *fileTree) addDirectory(argument string) error {
	destination, modeText, hasMode := strings.Cut(argument, ":")
	if err := checkDestination(destination); err != nil {
		return err
	}
	mode := int64(0o755)
	if hasMode {
		var err error
		if mode, err = parseMode(modeText); err != nil {
			return err
		}
	}
	return t.put(destination, node{kind: tar.TypeDir, mode: mode, given: true})
}

func (t *fileTree) addFile(source string, info fs.FileInfo, destination string, mode int64) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is neither a regular file, a directory nor a symbolic link", source)
	}
	if mode < 0 {
		mode = 0o644
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
	}
	return t.put(destination, node{kind: tar.TypeReg, mode: mode, source: source, given: true})
}

// put enters one path and its parents. Two contents for one path are a mistake of the caller;
// a directory that is only implied yields to one with a mode of its own.
func (t *fileTree) put(destination string, entry node) error {
	destination = path.Clean(destination)
	if destination == "/" {
		if entry.kind != tar.TypeDir {
			return errors.New("the root of the image can only be a directory")
		}
		return nil
	}
	if err := t.put(path.Dir(destination), node{kind: tar.TypeDir, mode: 0o755}); err != nil {
		return err
	}
	known, exists := t.nodes[destination]
	switch {
	case !exists:
		t.nodes[destination] = entry
	case known.kind == tar.TypeDir && entry.kind == tar.TypeDir && (!known.given || !entry.given):
		if entry.given {
			t.nodes[destination] = entry
		}
	default:
		return fmt.Errorf("%s is already in the image", destination)
	}
	return nil
}

// writeTar writes the tree with parents before children, owned by root, at a fixed time.
func (t *fileTree) writeTar(w io.Writer) error {
	archive := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		if err := writeNode(archive, strings.TrimPrefix(name, "/"), t.nodes[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return archive.Close()
}

func writeNode(archive *tar.Writer, name string, entry node) error {
	header := &tar.Header{
		Typeflag: entry.kind,
		Name:     name,
		Linkname: entry.target,
		Mode:     entry.mode,
		ModTime:  epoch,
	}
	if entry.kind == tar.TypeDir {
		header.Name += "/"
	}
	if entry.kind != tar.TypeReg {
		return archive.WriteHeader(header)
	}
	file, err := os.Open(entry.source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}

func checkDestination(destination string) error {
	if !path.IsAbs(destination) {
		return fmt.Errorf("%q is not an absolute path of the image", destination)
	}
	return nil
}

func parseMode(text string) (int64, error) {
	mode, err := strconv.ParseInt(text, 8, 64)
	if err != nil || mode < 0 || mode > 0o7777 {
		return 0, fmt.Errorf("mode %q: want an octal number up to 7777", text)
	}
	return mode, nil
}
