package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/poll"
)

// Lock holds a directory by flock(2). The kernel releases it with the process, however that ends.
type Lock struct{ dir *os.File }

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("locked")

// TryLock takes the lock on a directory or returns ErrLocked together with the number of the process that
// holds it, 0 where the kernel names none.
func TryLock(path string) (*Lock, int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		defer f.Close()
		holder, err := lockHolder(f)
		if err != nil {
			return nil, 0, err
		}
		return nil, holder, ErrLocked
	}
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("flock %s: %w", path, err)
	}
	// The directory may have been removed, and made again, between open and flock.
	opened, err1 := f.Stat()
	current, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(opened, current) {
		f.Close()
		return nil, 0, ErrLocked
	}
	return &Lock{dir: f}, 0, nil
}

// Release gives the lock back. A nil lock is none.
func (l *Lock) Release() {
	if l != nil {
		l.dir.Close()
	}
}

// AwaitLock takes the lock on a directory when it is free. detail is told which process it waits for.
func AwaitLock(ctx context.Context, dir string, detail func(string)) (*Lock, error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		lock, holder, err := TryLock(dir)
		if !errors.Is(err, ErrLocked) {
			detail("")
			return lock, err
		}
		detail(fmt.Sprintf("waiting for process %d, which is at it already", holder))
		if err := poll.Wait(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// lockHolder returns the process that holds a file by flock(2), or 0 when the kernel names none.
func lockHolder(f *os.File) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: no inode", f.Name())
	}
	raw, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0, err
	}
	return parseLockHolder(string(raw), st.Dev, st.Ino), nil
}

// parseLockHolder reads /proc/locks: "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF".
func parseLockHolder(locks string, device, inode uint64) int {
	major := (device>>8)&0xfff | (device>>32)&^uint64(0xfff)
	minor := device&0xff | (device>>12)&^uint64(0xff)
	file := fmt.Sprintf("%02x:%02x:%d", major, minor, inode)
	for line := range strings.Lines(locks) {
		fields := strings.Fields(line)
		if i := slices.Index(fields, "FLOCK"); i != 1 || len(fields) < 6 || fields[5] != file {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(fields[4], "%d", &pid); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
