package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
	"github.com/bergctf/berg-operator/internal/tunnel/proxypod"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/credentials"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
)

// localProcess runs server proxies as processes next to the operator, which outlive it. The folder on the command line of
// a process has the UID of the pair in its name, so that the process is found again after the operator was killed.
type localProcess struct {
	binary string
	// dir has all files; only the user of the operator may read it.
	dir   string
	jobs  *jobs.Runner
	clock clock.PassiveClock

	mu sync.Mutex
	// exits are how processes ended that this operator watched, "" before, of pairs that are not cleaned up yet.
	exits map[types.UID]string
	// watched are the processes whose end is waited for.
	watched map[int]bool
	// stopping is when a process was first asked to end.
	stopping map[types.UID]time.Time
}

// killAfter is how long a process may drain before it is killed.
const killAfter = proxypod.DrainSeconds * time.Second

func newLocalProcess(binary string, r *jobs.Runner, now clock.PassiveClock) *localProcess {
	return &localProcess{
		binary: binary, dir: filepath.Join(os.TempDir(), "berg-tunnel-"+strconv.Itoa(os.Geteuid())), jobs: r, clock: now,
		exits: map[types.UID]string{}, watched: map[int]bool{}, stopping: map[types.UID]time.Time{},
	}
}

// makeFolder makes the folder, or checks that it belongs to this user alone.
func (l *localProcess) makeFolder() error {
	if err := os.Mkdir(l.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("folder for server proxies: %w", err)
	}
	return l.checkFolder()
}

// checkFolder returns an error unless the folder exists and belongs to this user alone.
func (l *localProcess) checkFolder() error {
	info, err := os.Lstat(l.dir)
	if err != nil {
		return fmt.Errorf("folder for server proxies: %w", err)
	}
	// The parent folder is writable for all users, so another one may have made it first.
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("folder for server proxies: %s must be a folder that only user %d may enter: remove it", l.dir, os.Geteuid())
	}
	return nil
}

func (l *localProcess) tls(p *tunnelv1.ContainerNetworkTunnelProxy) string {
	return filepath.Join(l.dir, fmt.Sprintf("%s_tls_%s", p.Name, p.UID))
}

// tlsArgument is the argument by which the process of a pair is found.
func (l *localProcess) tlsArgument(p *tunnelv1.ContainerNetworkTunnelProxy) string {
	return "--tls-dir=" + l.tls(p)
}

func (l *localProcess) files(p *tunnelv1.ContainerNetworkTunnelProxy) (out, err string) {
	return filepath.Join(l.dir, fmt.Sprintf("%s_out_%s", p.Name, p.UID)), filepath.Join(l.dir, fmt.Sprintf("%s_err_%s", p.Name, p.UID))
}

// Observe finds the process of a pair by its arguments, since it outlives the operator and no process ID is
// stored. A process that has ended is known by its exit, or, if it ended while no operator ran, by the line that
// it had written. A line that was cut by a kill of the process is no JSON, and counts as none.
func (l *localProcess) Observe(_ context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (status.Server, error) {
	out, errs := l.files(p)
	l.mu.Lock()
	exit := l.exits[p.UID]
	l.mu.Unlock()
	pid, startedAt, err := findProcess(l.tlsArgument(p))
	if err != nil {
		return status.Server{}, err
	}
	written, err := os.ReadFile(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return status.Server{}, fmt.Errorf("output of the server proxy: %w", err)
	}
	first, _, _ := bytes.Cut(written, []byte("\n"))
	line := status.ParseLine(first)
	s := status.Server{Out: out, Err: errs, Address: "127.0.0.1", StartedAt: startedAt}
	switch {
	case pid == 0 && exit != "":
		s.Exists, s.Ended = true, exit
	case pid == 0 && line != nil:
		s.Exists, s.Ended = true, proxyName+" ended while the operator did not run"
	case pid != 0:
		s.Exists, s.Ready = true, line
		l.watch(p, pid)
		if line == nil {
			s.Waiting = notReady
			l.awaitLine(p, pid, out) //nolint:contextcheck // the job outlives the reconciliation
		}
	}
	return s, nil
}

// awaitLine has a job wait until the first line is written or the process is gone.
func (l *localProcess) awaitLine(p *tunnelv1.ContainerNetworkTunnelProxy, pid int, out string) {
	run := func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, lineTimeout)
		defer cancel()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			if written, err := os.ReadFile(out); err == nil && bytes.ContainsRune(written, '\n') {
				return true
			}
			if unix.Kill(pid, 0) != nil {
				return false
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return false
			}
		}
	}
	jobs.Do(l.jobs, jobs.Job[bool]{
		UID: p.UID, Name: p.Name, Kind: JobReady, Input: strconv.Itoa(pid), Run: run,
		Retry: func(found bool, _ int) time.Duration { return retryLine(found) },
	}, l.clock.Now())
}

// Start returns as soon as the process exists. How it ends is known to this operator process only: a later one sees that it is
// gone.
func (l *localProcess) Start(_ context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, in manifests.Inputs, keys credentials.Keys) error {
	if err := l.makeFolder(); err != nil {
		return err
	}
	if err := l.Renew(p, keys); err != nil {
		return err
	}
	out, errs := l.files(p)
	var files [2]*os.File
	for i, name := range []string{out, errs} {
		// A symbolic link would let another user of the parent folder choose the file that is emptied here.
		file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return fmt.Errorf("log of the server proxy: %w", err)
		}
		defer func() { _ = file.Close() }()
		files[i] = file
	}
	args := append([]string{"server", l.tlsArgument(p), "--server-control-address=127.0.0.1"}, manifests.ServerArgs(in)...)
	cmd := exec.Command(l.binary, args...)
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	// A signal to the operator's process group must not end it.
	// The process outlives the operator: a new operator process finds it by its arguments and watches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the server proxy (TUNNEL_BINARY): %w", err)
	}
	l.mu.Lock()
	// Before the process is waited for: ended keeps the exit only of a known pair.
	l.watched[cmd.Process.Pid], l.exits[p.UID] = true, ""
	l.mu.Unlock()
	// Wait also reaps the process: otherwise it would stay as a zombie, which still has a process ID.
	go func() {
		_ = cmd.Wait()
		exit := status.ExitText(proxyName, int32(cmd.ProcessState.ExitCode()))
		if wait, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
			exit = fmt.Sprintf(proxyName+" was ended by signal %d (%s)", wait.Signal(), wait.Signal())
		}
		l.ended(p.Name, p.UID, cmd.Process.Pid, exit)
	}()
	l.jobs.Enqueue(p.Name, 0)
	return nil
}

// watch waits for the end of a process that an earlier operator process has started.
func (l *localProcess) watch(p *tunnelv1.ContainerNetworkTunnelProxy, pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched[pid] {
		return
	}
	// Another process's child cannot be waited for, but a pidfd becomes readable when the process ends, and never
	// refers to a later process with the same ID.
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		l.jobs.Enqueue(p.Name, time.Second) // it has just ended
		return
	}
	name, uid := p.Name, p.UID
	l.watched[pid], l.exits[uid] = true, ""
	go func() {
		defer func() { _ = unix.Close(handle) }()
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		l.ended(name, uid, pid, fmt.Sprintf(proxyName+" (process %d) has ended", pid))
	}()
}

// ended stores how a process ended, and enqueues its pair. A pair that was removed in between has no exit any more.
func (l *localProcess) ended(name string, uid types.UID, pid int, exit string) {
	l.mu.Lock()
	delete(l.watched, pid)
	if _, known := l.exits[uid]; known {
		l.exits[uid] = exit
	}
	l.mu.Unlock()
	l.jobs.Enqueue(name, 0)
}

// Renew gives the server proxy its present certificate.
func (l *localProcess) Renew(p *tunnelv1.ContainerNetworkTunnelProxy, keys credentials.Keys) error {
	if err := pki.WriteFiles(l.tls(p), keys.Authority, keys.Server); err != nil {
		return fmt.Errorf("certificates of the server proxy: %w", err)
	}
	return nil
}

// Stop sends SIGTERM once, with which the process drains its streams, and SIGKILL after killAfter. It returns gone
// only when no process is found any more; its end enqueues the pair.
func (l *localProcess) Stop(_ context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (gone bool, err error) {
	pid, _, err := findProcess(l.tlsArgument(p))
	if err != nil || pid == 0 {
		return err == nil, err
	}
	l.watch(p, pid)
	l.mu.Lock()
	since, stopping := l.stopping[p.UID]
	if !stopping {
		since = l.clock.Now()
		l.stopping[p.UID] = since
	}
	l.mu.Unlock()
	signal := unix.SIGTERM
	switch {
	case l.clock.Since(since) >= killAfter:
		signal = unix.SIGKILL
	case stopping:
		return false, nil // a second signal would end it before it has drained
	}
	l.jobs.Enqueue(p.Name, killAfter)
	if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("end the server proxy: %w", err)
	}
	return false, nil
}

// Clean may be repeated. It removes the keys in any case, and the logs unless they are kept for a person.
func (l *localProcess) Clean(p *tunnelv1.ContainerNetworkTunnelProxy, keepLogs bool) error {
	if l.checkFolder() != nil {
		return nil //nolint:nilerr // this operator has never run processes
	}
	err := os.RemoveAll(l.tls(p))
	if keepLogs {
		return err
	}
	out, errs := l.files(p)
	l.mu.Lock()
	delete(l.exits, p.UID)
	delete(l.stopping, p.UID)
	l.mu.Unlock()
	return errors.Join(err, remove(out), remove(errs))
}

func remove(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
