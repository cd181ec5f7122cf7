package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Every process of a cluster carries these two in its environment. They are the only bookkeeping there is:
// a process that was started is found again although the runner died before it could write anything down,
// and a process that does not carry the mark of this very state directory is never touched.
const (
	markCluster   = "BERG_CLUSTER_MEMBER_OF"
	markComponent = "BERG_CLUSTER_COMPONENT"
)

// component is one long-running program of a cluster.
type component struct {
	name string
	path string
	args []string
	env  []string
	// cloneflags are the namespaces that it gets for itself, outside of those of the node.
	cloneflags uintptr
	// ready is polled until it returns nil.
	ready func(context.Context) error
	// hint is the remedy to print when it does not come up.
	hint string
}

func (c *cluster) logFile(component string) string { return c.path("logs", component+".log") }

// start runs a component detached from the runner: its own session, its output in a file.
func (c *cluster) start(p component) error {
	log, err := os.OpenFile(c.logFile(p.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()

	cmd, err := c.command(p)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: p.cloneflags}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	// Reaped when it ends during this run, so that a dead component is not taken for a live one.
	go func() { _ = cmd.Wait() }()
	return nil
}

// command prepares a component to run where the cluster's components run.
func (c *cluster) command(p component) (*exec.Cmd, error) {
	if !c.hasNode() || p.cloneflags != 0 {
		return c.bare(p, p.path, p.args), nil
	}
	path, args, err := c.inside(p.path, p.args)
	return c.bare(p, path, args), err
}

// bare prepares a component with an environment of its own: what the user has exported,
// a proxy for one, must not change how a cluster behaves.
func (c *cluster) bare(p component, path string, args []string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = c.dir
	cmd.Env = append([]string{
		"PATH=" + systemPath,
		"HOME=" + c.path("home"),
		"TMPDIR=" + c.path("tmp"),
		markCluster + "=" + c.dir,
		markComponent + "=" + p.name,
	}, p.env...)
	return cmd
}

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// process is one live process that carries the mark of a cluster.
type process struct {
	pid       int
	component string
	// leader tells the program that start started from those that it started in turn, such as a container's shim,
	// which live on when it dies.
	leader bool
}

// processes finds every live process of the cluster whose state directory is dir.
func processes(dir string) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if name, ok := markOf(environOf(pid, dir), dir); ok {
			found = append(found, process{pid: pid, component: name, leader: sessionOf(pid) == pid})
		}
	}
	slices.SortFunc(found, func(a, b process) int { return a.pid - b.pid })
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
			return nil // a zombie, a thread of the kernel, or nobody of ours
		}
		<-time.After(time.Millisecond)
	}
}

// sessionOf returns the session of a process, or 0 when it is gone.
func sessionOf(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	return parseSession(raw)
}

// parseSession reads /proc/PID/stat, in which the name of the program, in parentheses, may hold anything.
func parseSession(stat []byte) int {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 4 {
		return 0
	}
	session, _ := strconv.Atoi(string(fields[3]))
	return session
}

// markOf reads a /proc/PID/environ and tells whether it carries the mark of dir, and for which component.
func markOf(environ []byte, dir string) (component string, ours bool) {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		key, value, _ := bytes.Cut(entry, []byte{'='})
		switch string(key) {
		case markCluster:
			ours = string(value) == dir
		case markComponent:
			component = string(value)
		}
	}
	if !ours {
		return "", false
	}
	return component, true
}

// running maps the components that run to their processes.
func (c *cluster) running() (map[string]int, error) {
	all, err := processes(c.dir)
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, p := range all {
		if p.leader {
			pids[p.component] = p.pid
		}
	}
	return pids, nil
}

// find lists processes that are to end. It is called again and again, since they may fork meanwhile.
type find func() ([]int, error)

// endProcesses asks with SIGTERM, waits, and insists with SIGKILL until find finds nothing.
func endProcesses(ctx context.Context, find find, grace time.Duration) error {
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
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// wait sleeps or returns the reason why there is nothing left to wait for.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// poll calls check until it returns nil. When the context ends first, it returns what check said last.
func poll(ctx context.Context, check func(context.Context) error) error {
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 500*time.Millisecond) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		var final *finalError
		if errors.As(err, &final) {
			return err
		}
		if ended := wait(ctx, pause); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// finalError ends a poll: waiting longer changes nothing.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// tail returns the last lines of a log, for an error message.
func tail(path string, lines int) string {
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
	return strings.Join(all, "\n")
}
