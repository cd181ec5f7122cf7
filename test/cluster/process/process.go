// Package process finds and ends the processes of a cluster, by a mark in their environment.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bergctf/berg-operator/test/cluster/poll"
)

// Every process of a cluster carries these two in its environment. They are the only bookkeeping there is:
// a process that was started is found again although the runner died before it could write anything down,
// and a process that does not carry the mark of this very state directory is never touched.
const (
	MarkCluster   = "BERG_CLUSTER_MEMBER_OF"
	MarkComponent = "BERG_CLUSTER_COMPONENT"
)

// Process is one live process that carries the mark of a cluster.
type Process struct {
	PID       int
	Component string
	// leader tells the program that start started from those that it started in turn, such as a container's shim,
	// which live on when it dies.
	Leader bool
}

// Of finds every live process of the cluster whose state directory is dir.
func Of(dir string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if name, ok := markOf(environOf(pid, dir), dir); ok {
			session, _ := unix.Getsid(pid) // 0 for one that has ended
			found = append(found, Process{PID: pid, Component: name, Leader: session == pid})
		}
	}
	slices.SortFunc(found, func(a, b Process) int { return a.PID - b.PID })
	return found, nil
}

// environOf returns the environment of a process, empty if it belongs to another user or is gone. While its program
// is being loaded a process has none, but where it works it works already: in a state directory, for a cluster's.
// One that was forked just before its runner was killed would be missed in between.
func environOf(pid int, dir string) []byte {
	const loading = time.Second // of a program, on a busy machine

	begin := time.Now()
	for {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || len(environ) > 0 || time.Since(begin) > loading {
			return environ
		}
		if where, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || where != dir {
			return nil // a zombie, a thread of the kernel, or not a process of ours
		}
		<-time.After(time.Millisecond)
	}
}

// markOf reads a /proc/PID/environ and tells whether it carries the mark of dir, and for which component.
func markOf(environ []byte, dir string) (component string, ours bool) {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		key, value, _ := bytes.Cut(entry, []byte{'='})
		switch string(key) {
		case MarkCluster:
			ours = string(value) == dir
		case MarkComponent:
			component = string(value)
		}
	}
	if !ours {
		return "", false
	}
	return component, true
}

// Find lists processes that are to end. It is called again and again, since they may fork in between.
type Find func() ([]int, error)

// Everything wants every component.
func Everything(string) bool { return true }

// Marked finds the processes of a cluster by their mark.
func Marked(dir string, wanted func(component string) bool) Find {
	return func() ([]int, error) {
		all, err := Of(dir)
		if err != nil {
			return nil, err
		}
		var pids []int
		for _, p := range all {
			if wanted(p.Component) {
				pids = append(pids, p.PID)
			}
		}
		return pids, nil
	}
}

// End asks with SIGTERM, waits, and insists with SIGKILL until find finds nothing.
func End(ctx context.Context, find Find, grace time.Duration) error {
	const insist = 20 * time.Second

	begin := time.Now()
	asked := map[int]bool{}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		pids, err := find()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			switch {
			case time.Since(begin) >= grace:
				_ = syscall.Kill(pid, syscall.SIGKILL)
			case !asked[pid]:
				asked[pid] = true
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		if time.Since(begin) > grace+insist {
			return fmt.Errorf("processes %v do not end, not even by SIGKILL: look at /proc/%d/stack", pids, pids[0])
		}
		if err := poll.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

// Tail returns the last lines of a log, for an error message.
func Tail(path string, lines int) string {
	const width = 300

	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "(nothing logged)"
	}
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		all[i] = fmt.Sprintf("  %.*s", width, line)
	}
	text := strings.Join(all, "\n")
	if strings.Contains(text, "inotify") && strings.Contains(text, "too many open files") {
		text += "\nAll clusters of this user share the inotify instances: raise their number with sysctl fs.inotify.max_user_instances=1024"
	}
	return text
}
