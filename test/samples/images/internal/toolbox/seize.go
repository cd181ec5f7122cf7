package toolbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Seized is the answer of seize where an attempt succeeds.
const Seized = "seized"

// attempts are what takes something of the node, by name. Each changes nothing where it succeeds.
var attempts = map[string]func() error{
	"device":   seizeDevice,
	"sysctl":   func() error { return openAny(os.O_WRONLY, sysctls...) },
	"sysrq":    func() error { return openAny(os.O_WRONLY, "/proc/sysrq-trigger") },
	"memory":   seizeMemory,
	"files":    seizeFileSystem,
	"module":   seizeModule,
	"program":  seizeProgram,
	"observer": seizeObserver,
	"keys":     seizeKeys,
	"log":      func() error { _, err := syscall.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 1)); return err },
	"clock":    seizeClock,
}

// Attempts returns the names of what seize can try, in order.
func Attempts() []string { return slices.Sorted(maps.Keys(attempts)) }

// seize NAME...: tries to take something of the node, and prints a line for each: NAME, a tab, and seized or the error.
func seize(_ context.Context, streams Streams, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want NAME, one or more of %s", strings.Join(Attempts(), ", "))
	}
	for _, name := range args {
		attempt, known := attempts[name]
		if !known {
			return fmt.Errorf("unknown attempt %q: want one of %s", name, strings.Join(Attempts(), ", "))
		}
		answer := Seized
		if err := attempt(); err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
		if _, err := fmt.Fprintf(streams.Out, "%s\t%s\n", name, answer); err != nil {
			return err
		}
	}
	return nil
}

// sysctls are settings of the whole kernel. Those of the network, of IPC, of processes and the host's name are a container's own.
var sysctls = []string{
	"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/panic", "/proc/sys/kernel/sysrq",
	"/proc/sys/kernel/threads-max", "/proc/sys/vm/panic_on_oom", "/proc/sys/vm/drop_caches", "/proc/sys/fs/suid_dumpable",
	"/proc/sys/fs/file-max", "/sys/kernel/mm/transparent_hugepage/enabled",
}

// openAny succeeds if one of some files can be opened.
func openAny(flags int, paths ...string) error {
	var errs []error
	for _, path := range paths {
		file, err := os.OpenFile(path, flags, 0)
		if err == nil {
			file.Close()
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// seizeDevice makes the device of each disk of the node, and reads it.
func seizeDevice() error {
	partitions, err := os.ReadFile("/proc/partitions")
	if err != nil {
		return err
	}
	err = errors.New("the node has no disk")
	for line := range strings.Lines(string(partitions)) {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			continue
		}
		major, majorErr := strconv.ParseUint(fields[0], 10, 32)
		minor, minorErr := strconv.ParseUint(fields[1], 10, 32)
		if majorErr != nil || minorErr != nil {
			continue
		}
		if err = openDevice(unix.S_IFBLK, uint32(major), uint32(minor)); err == nil {
			return nil
		}
	}
	return err
}

// openDevice makes a device and opens it.
func openDevice(kind, major, minor uint32) error {
	folder, err := os.MkdirTemp("", "seize-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "device")
	if err := unix.Mknod(path, kind|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("mknod %d:%d: %w", major, minor, err)
	}
	return openAny(os.O_RDONLY, path)
}

// seizeMemory reads the memory of the node.
func seizeMemory() error {
	if err := openAny(os.O_RDONLY, "/proc/kcore", "/dev/mem"); err == nil {
		return nil
	}
	return openDevice(unix.S_IFCHR, 1, 1)
}

// seizeFileSystem mounts file systems that are the node's in every mount namespace.
func seizeFileSystem() error {
	folder, err := os.MkdirTemp("", "seize-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	var errs []error
	for _, kind := range []string{"devtmpfs", "debugfs", "tracefs", "securityfs", "pstore", "configfs"} {
		err := unix.Mount(kind, folder, kind, 0, "")
		if err == nil {
			return unix.Unmount(folder, unix.MNT_DETACH)
		}
		errs = append(errs, fmt.Errorf("mount %s: %w", kind, err))
	}
	return errors.Join(errs...)
}

// seizeModule loads a module that is none: who may, is told so.
func seizeModule() error {
	return permitted(unix.InitModule([]byte{0}, ""), unix.ENOEXEC)
}

// seizeProgram asks for an object of BPF that cannot be: who may, is told so.
func seizeProgram() error {
	var nothing [128]byte
	const mapCreate = 0
	_, _, errno := unix.Syscall(unix.SYS_BPF, mapCreate, uintptr(unsafe.Pointer(&nothing)), uintptr(len(nothing)))
	if errno == 0 {
		return nil
	}
	return permitted(errno, unix.EINVAL)
}

// seizeClock sets the clock to the speed that it has.
func seizeClock() error {
	var clock unix.Timex
	if _, err := unix.Adjtimex(&clock); err != nil {
		return err
	}
	clock.Modes = unix.ADJ_FREQUENCY
	_, err := unix.Adjtimex(&clock)
	return err
}

// seizeObserver counts the events of the whole first processor.
func seizeObserver() error {
	const anyProcess, firstCPU = -1, 0
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: unix.PERF_COUNT_SW_CPU_CLOCK}, anyProcess, firstCPU, -1, 0)
	if err == nil {
		return unix.Close(fd)
	}
	return err
}

// seizeKeys asks for the keys of the user, which no namespace of mounts or processes separates.
func seizeKeys() error {
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, false)
	return permitted(err, unix.ENOKEY)
}

// permitted takes an error that only follows once the right was there for success.
func permitted(err error, after error) error {
	if errors.Is(err, after) {
		return nil
	}
	return err
}
