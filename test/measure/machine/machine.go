// Package machine describes the machine that a measurement runs on, and what its processes use.
package machine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
)

// Description is what results are published with.
type Description struct {
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
	MemoryGiB  int    `json:"memoryGiB"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	Commit     string `json:"commit"`
}

// Describe returns the description of this machine. What cannot be read stays empty.
func Describe() Description {
	d := Description{Processors: runtime.NumCPU(), Go: runtime.Version()}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return d
	}
	if all, err := fs.CPUInfo(); err == nil && len(all) > 0 {
		d.Processor = all[0].ModelName
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		d.MemoryGiB = int((*memory.MemTotalBytes + 1<<29) >> 30)
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		d.Kernel, _, _ = strings.Cut(strings.TrimSpace(string(release)), "-")
	}
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		d.Commit = strings.TrimSpace(string(out))
	}
	return d
}

// LoadAverage returns the load averages of the last 1, 5 and 15 minutes.
func LoadAverage() string {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return ""
	}
	load, err := fs.LoadAvg()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%.2f %.2f %.2f", load.Load1, load.Load5, load.Load15)
}

// CPU returns how many seconds of a processor a process has used, 0 if it has ended.
func CPU(pid int) float64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	stat, err := process.Stat()
	if err != nil {
		return 0
	}
	return stat.CPUTime()
}

// Memory is what a process holds, in bytes.
type Memory struct {
	// Resident is the memory now, Peak the maximum since the start, Anonymous the part of Resident that no file backs.
	Resident, Peak, Anonymous uint64
}

// ReadMemory returns the memory of a process. The error says that it has ended.
func ReadMemory(pid int) (Memory, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Memory{}, err
	}
	status, err := process.NewStatus()
	return Memory{Resident: status.VmRSS, Peak: status.VmHWM, Anonymous: status.RssAnon}, err
}
