package backend

import (
	"fmt"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// findProcess returns the process of this user with an argument, and when it was started, with the precision of Linux, 1/100 s;
// 0 if there is none.
func findProcess(argument string) (pid int, startedAt time.Time, err error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("find the server proxy: %w", err)
	}
	for _, p := range processes {
		// A zombie has no command line. Other processes may end in between.
		if line, err := p.CmdLine(); err != nil || !slices.Contains(line, argument) || !isOwn(p.PID) {
			continue
		}
		stat, err := p.Stat()
		if err != nil {
			continue
		}
		seconds, err := stat.StartTime()
		if err != nil {
			continue
		}
		return p.PID, time.UnixMilli(10 * int64(math.Round(100*seconds))), nil
	}
	return 0, time.Time{}, nil
}

// isOwn reports whether a process runs as the user of this one.
func isOwn(pid int) bool {
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(owner.Uid) == os.Geteuid()
}
