package backend

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// findProcess returns the process of this user with an argument, and when it was started; 0 if there is none.
func findProcess(argument string) (pid int, startedAt time.Time, err error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("find the server proxy: %w", err)
	}
	for _, entry := range processes {
		number, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// A zombie has no command line.
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil || !bytes.Contains(line, []byte(argument+"\x00")) {
			continue
		}
		info, err := os.Stat(filepath.Join("/proc", entry.Name()))
		if err != nil {
			continue
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
			continue
		}
		began, err := startTime(number)
		if err != nil {
			continue
		}
		return number, began, nil
	}
	return 0, time.Time{}, nil
}

// startTime returns when a process was started, with the precision of Linux, 1/100 s.
func startTime(pid int) (time.Time, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	// The name of the program may have blanks and parentheses, so fields are counted from its end. Field 22 is the start
	// in ticks of 1/100 s since the boot.
	_, rest, _ := strings.Cut(string(stat[max(0, bytes.LastIndexByte(stat, ')')):]), " ")
	fields := strings.Fields(rest)
	const field = 22 - 3
	if len(fields) <= field {
		return time.Time{}, fmt.Errorf("process %d: no start time", pid)
	}
	ticks, err := strconv.ParseInt(fields[field], 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	boot, err := bootTime()
	return boot.Add(time.Duration(ticks) * 10 * time.Millisecond), err
}

// bootTime returns btime of /proc/stat, which changes only when the clock is set.
func bootTime() (time.Time, error) {
	file, err := os.Open("/proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "btime "); ok {
			seconds, err := strconv.ParseInt(text, 10, 64)
			return time.Unix(seconds, 0), err
		}
	}
	return time.Time{}, io.ErrUnexpectedEOF
}
