package source

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// normalize gives the files below a directory to a user, with the time of the commit and the modes that git records: builders copy
// all three into images. A directory is changed before what it contains, so that CAP_CHOWN is the only capability that root needs.
func normalize(root string, owner int, moment time.Time) error {
	var directories []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if err := os.Lchown(path, owner, owner); err != nil { //nolint:gosec // no other process has the directory
			return err
		}
		switch {
		case entry.Type()&fs.ModeSymlink != 0: // it has no mode
		case entry.IsDir(), info.Mode()&0o111 != 0:
			err = os.Chmod(path, 0o755) //nolint:gosec // as in a context of Docker
		default:
			err = os.Chmod(path, 0o644) //nolint:gosec // as above
		}
		if err != nil {
			return err
		}
		if entry.IsDir() {
			directories = append(directories, path)
			return nil
		}
		return setTime(path, moment)
	})
	if err != nil {
		return err
	}
	// Directories get their time last, because each write in one changes it.
	for _, path := range slices.Backward(directories) {
		if err := setTime(path, moment); err != nil {
			return err
		}
	}
	return nil
}

// setTime sets the time of a file, also of a link.
func setTime(path string, moment time.Time) error {
	spec := unix.NsecToTimespec(moment.UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{spec, spec}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "set the time of", Path: path, Err: err}
	}
	return nil
}
