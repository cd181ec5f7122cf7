package disk

import (
	"errors"
	"os"
	"testing"
)

func TestParseLockHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  READ  11 fe:00:77 128 128
2: FLOCK  ADVISORY  WRITE 22 fe:00:77 0 EOF
2: -> FLOCK  ADVISORY  WRITE 33 fe:00:77 0 EOF
3: FLOCK  ADVISORY  WRITE 44 fe:00:777 0 EOF
4: FLOCK  ADVISORY  WRITE 0 08:01:88 0 EOF
`
	for _, tc := range []struct {
		device, inode uint64
		want          int
	}{
		{0xfe00, 77, 22},
		{0xfe00, 777, 44},
		{0xfe01, 77, 0},
		{0x0801, 88, 0}, // held in another process namespace
	} {
		if got := parseLockHolder(locks, tc.device, tc.inode); got != tc.want {
			t.Errorf("holder of %x:%d: got %d, want %d", tc.device, tc.inode, got, tc.want)
		}
	}
}

func TestLockDirectory(t *testing.T) {
	dir := t.TempDir()
	first, _, err := TryLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, holder, err := TryLock(dir)
	if !errors.Is(err, ErrLocked) {
		t.Fatalf("a second lock: got %v, want %v", err, ErrLocked)
	}
	if holder != os.Getpid() {
		t.Errorf("holder: got %d, want this process, %d", holder, os.Getpid())
	}
	first.Release()
	second, _, err := TryLock(dir)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	second.Release()
}
