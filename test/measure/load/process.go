package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"github.com/bergctf/berg-operator/test/cluster/process"
)

// processes are those that are measured, by name.
type processes map[string]int

// findProcesses finds what runs of the cluster with a state directory.
func findProcesses(state string) (processes, error) {
	all, err := process.Of(state)
	if err != nil {
		return nil, err
	}
	found := processes{}
	for _, p := range all {
		if p.Leader {
			found.add(p.Component, p.PID)
		}
	}
	if found["kube-apiserver"] == 0 {
		return nil, fmt.Errorf("no API server of the cluster in %s runs on this machine", state)
	}
	found.add("load", os.Getpid())
	return found, nil
}

func (p processes) add(name string, pid int) { p[name] = pid }

// ticksPerSecond is the unit of times in /proc, which is the same on all
// architectures that Go runs on.
const ticksPerSecond = 100

// cpu returns how many seconds of a processor a process has used.
func (p processes) cpu(name string) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p[name]))
	if err != nil {
		return 0
	}
	// The name of the program, in parentheses, may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	user, _ := strconv.Atoi(string(fields[11]))
	system, _ := strconv.Atoi(string(fields[12]))
	return float64(user+system) / ticksPerSecond
}

// memory returns how many MiB of a process are resident.
func (p processes) memory(name string) float64 { return p.mebibytes(name, "VmRSS:") }

// peak returns how many MiB of a process were resident at most.
func (p processes) peak(name string) float64 { return p.mebibytes(name, "VmHWM:") }

func (p processes) mebibytes(name, field string) float64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", p[name]))
	if err != nil {
		return 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), field); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return round(kib/1024, 1)
		}
	}
	return 0
}

func describeMachine() Machine {
	m := Machine{Processors: runtime.NumCPU(), Go: runtime.Version()}
	for text := range strings.Lines(contents("/proc/cpuinfo")) {
		if name, value, ok := strings.Cut(text, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.Processor = strings.TrimSpace(value)
		}
	}
	for text := range strings.Lines(contents("/proc/meminfo")) {
		if value, ok := strings.CutPrefix(text, "MemTotal:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(value)[0])
			m.MemoryGiB = (kib + 1<<19) >> 20
		}
	}
	m.Kernel, _, _ = strings.Cut(strings.TrimSpace(contents("/proc/sys/kernel/osrelease")), "-")
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		m.Commit = strings.TrimSpace(string(out))
	}
	return m
}

func contents(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(text)
}
