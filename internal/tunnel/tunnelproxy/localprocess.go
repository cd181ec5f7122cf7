package tunnelproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
	"github.com/bergctf/berg-operator/internal/tunnel/pki"
)

// localProcess runs server proxies as processes beside the operator, which outlive it. The
// folder that a process is given on its command line has the UID of the pair in its name: by
// that it is found again, whenever the operator was killed.
type localProcess struct {
	binary string
	// dir holds everything; only the user of the operator may look into it.
	dir   string
	work  *jobs.Work
	clock clock.PassiveClock

	mu sync.Mutex
	// exits are how processes ended, as far as this operator saw them, "" before, of pairs that were
	// not cleaned up; watched are those whose end somebody waits for; asked is since when one is to end.
	exits   map[types.UID]string
	watched map[int]bool
	asked   map[types.UID]time.Time
}

// killAfter is how long a process may drain.
const killAfter = drainSeconds * time.Second

func newLocalProcess(binary string, w *jobs.Work, now clock.PassiveClock) *localProcess {
	return &localProcess{
		binary: binary, dir: filepath.Join(os.TempDir(), "berg-tunnel-"+strconv.Itoa(os.Geteuid())), work: w, clock: now,
		exits: map[types.UID]string{}, watched: map[int]bool{}, asked: map[types.UID]time.Time{},
	}
}

// makeFolder makes the folder, or makes sure that it is nobody else's.
func (l *localProcess) makeFolder() error {
	if err := os.Mkdir(l.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("folder for server proxies: %w", err)
	}
	return l.checkFolder()
}

// checkFolder returns an error unless there is a folder of ours.
func (l *localProcess) checkFolder() error {
	info, err := os.Lstat(l.dir)
	if err != nil {
		return fmt.Errorf("folder for server proxies: %w", err)
	}
	// In a folder that all may write to, somebody may have been there first.
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(owner.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("folder for server proxies: %s must be a folder that only user %d may enter: remove it", l.dir, os.Geteuid())
	}
	return nil
}

func (l *localProcess) tls(p *tunnelv1.ContainerNetworkTunnelProxy) string {
	return filepath.Join(l.dir, fmt.Sprintf("%s_tls_%s", p.Name, p.UID))
}

func (l *localProcess) files(p *tunnelv1.ContainerNetworkTunnelProxy) (out, err string) {
	return filepath.Join(l.dir, fmt.Sprintf("%s_out_%s", p.Name, p.UID)), filepath.Join(l.dir, fmt.Sprintf("%s_err_%s", p.Name, p.UID))
}

func (l *localProcess) observe(_ context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (Server, error) {
	out, errs := l.files(p)
	l.mu.Lock()
	exit := l.exits[p.UID]
	l.mu.Unlock()
	pid, startedAt, err := l.find(p)
	if err != nil {
		return Server{}, err
	}
	written, err := os.ReadFile(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Server{}, fmt.Errorf("output of the server proxy: %w", err)
	}
	first, _, _ := bytes.Cut(written, []byte("\n"))
	line := parseLine(first)
	s := Server{Out: out, Err: errs, Address: "127.0.0.1", StartedAt: startedAt}
	switch {
	case pid == 0 && exit != "":
		s.Exists, s.Ended = true, exit
	case pid == 0 && line != nil:
		s.Exists, s.Ended = true, "the server proxy has ended while the operator was away"
	case pid != 0:
		s.Exists, s.Ready = true, line
		l.watch(p, pid)
		if line == nil {
			s.Waiting = "the server proxy has not reached the client proxy yet"
			l.awaitLine(p, pid, out) //nolint:contextcheck // the work outlives the pass
		}
	}
	return s, nil
}

// awaitLine looks for the first line beside the workers, until it is there or the process is gone.
func (l *localProcess) awaitLine(p *tunnelv1.ContainerNetworkTunnelProxy, pid int, out string) {
	_, done := jobs.Do(l.work, p.UID, p.Name, workReady, strconv.Itoa(pid), func(ctx context.Context) bool {
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
	})
	if done {
		l.work.Again(p.UID, workReady)
	}
}

// find returns the process of a pair and when it was started, 0 if there is none.
func (l *localProcess) find(p *tunnelv1.ContainerNetworkTunnelProxy) (pid int, startedAt time.Time, err error) {
	mark := []byte("--tls-dir=" + l.tls(p) + "\x00")
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("find the server proxy: %w", err)
	}
	for _, entry := range processes {
		number, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// One that has ended, and was not waited for yet, has no command line any more.
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil || !bytes.Contains(line, mark) {
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

// startTime returns when a process began, to the hundredth of a second that Linux keeps.
func startTime(pid int) (time.Time, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	// The name may hold blanks and parentheses: fields count from behind it. The 22nd field is
	// the start in ticks of 1/100 s since the boot.
	_, rest, _ := strings.Cut(string(stat[max(0, bytes.LastIndexByte(stat, ')')):]), " ")
	fields := strings.Fields(rest)
	const field = 22 - 3
	if len(fields) <= field {
		return time.Time{}, fmt.Errorf("process %d tells no start", pid)
	}
	ticks, err := strconv.ParseInt(fields[field], 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	boot, err := bootTime()
	return boot.Add(time.Duration(ticks) * 10 * time.Millisecond), err
}

// bootTime is that of /proc/stat, which stays the same while the clock is not set.
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

func (l *localProcess) start(_ context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, in Inputs, keys Keys) error {
	if err := l.makeFolder(); err != nil {
		return err
	}
	if err := l.renew(p, keys); err != nil {
		return err
	}
	out, errs := l.files(p)
	var files [2]*os.File
	for i, name := range []string{out, errs} {
		file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return fmt.Errorf("log of the server proxy: %w", err)
		}
		defer func() { _ = file.Close() }()
		files[i] = file
	}
	args := append([]string{"server", "--tls-dir=" + l.tls(p), "--server-control-address=127.0.0.1"}, serverArgs(in)...)
	cmd := exec.Command(l.binary, args...)
	cmd.Stdout, cmd.Stderr = files[0], files[1]
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	// What ends the operator must not end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the server proxy (TUNNEL_BINARY): %w", err)
	}
	l.mu.Lock()
	l.watched[cmd.Process.Pid], l.exits[p.UID] = true, ""
	l.mu.Unlock()
	go func() {
		_ = cmd.Wait()
		l.mu.Lock()
		delete(l.watched, cmd.Process.Pid)
		how := exitText("the server proxy", int32(cmd.ProcessState.ExitCode()))
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			how = fmt.Sprintf("the server proxy was ended by signal %d (%s)", status.Signal(), status.Signal())
		}
		l.note(p.UID, how)
		l.mu.Unlock()
		l.work.Call(p.Name, 0)
	}()
	l.work.Call(p.Name, 0)
	return nil
}

// watch waits for the end of a process that a former operator has started.
func (l *localProcess) watch(p *tunnelv1.ContainerNetworkTunnelProxy, pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watched[pid] {
		return
	}
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		l.work.Call(p.Name, time.Second) // it has just ended
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
		l.mu.Lock()
		delete(l.watched, pid)
		l.note(uid, fmt.Sprintf("the server proxy (process %d) has ended", pid))
		l.mu.Unlock()
		l.work.Call(name, 0)
	}()
}

// note is called with the lock held. A pair that was cleaned up meanwhile is not remembered again.
func (l *localProcess) note(uid types.UID, how string) {
	if _, there := l.exits[uid]; there {
		l.exits[uid] = how
	}
}

// renew writes the files of the proxy, each at once: it reads them with each connection.
func (l *localProcess) renew(p *tunnelv1.ContainerNetworkTunnelProxy, keys Keys) error {
	dir := l.tls(p)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("certificates of the server proxy: %w", err)
	}
	for name, content := range map[string][]byte{
		pki.AuthorityFile: keys.Authority, pki.CertificateFile: keys.Server.Certificate, pki.KeyFile: keys.Server.Key,
	} {
		path := filepath.Join(dir, name)
		if before, err := os.ReadFile(path); err == nil && bytes.Equal(before, content) {
			continue
		}
		next := path + ".next"
		if err := os.WriteFile(next, content, 0o600); err != nil {
			return fmt.Errorf("certificates of the server proxy: %w", err)
		}
		if err := os.Rename(next, path); err != nil {
			return fmt.Errorf("certificates of the server proxy: %w", err)
		}
	}
	return nil
}

func (l *localProcess) stop(_ context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (gone bool, err error) {
	pid, _, err := l.find(p)
	if err != nil || pid == 0 {
		return err == nil, err
	}
	l.watch(p, pid)
	l.mu.Lock()
	asked, again := l.asked[p.UID]
	if !again {
		asked = l.clock.Now()
		l.asked[p.UID] = asked
	}
	l.mu.Unlock()
	signal := unix.SIGTERM
	switch {
	case l.clock.Since(asked) >= killAfter:
		signal = unix.SIGKILL
	case again:
		return false, nil // a second signal would not let it drain
	}
	l.work.Call(p.Name, killAfter)
	if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("end the server proxy: %w", err)
	}
	return false, nil
}

func (l *localProcess) clean(p *tunnelv1.ContainerNetworkTunnelProxy, keepLogs bool) error {
	if l.checkFolder() != nil {
		return nil //nolint:nilerr // this operator has never run processes, and nobody else's files are touched
	}
	err := os.RemoveAll(l.tls(p))
	if keepLogs {
		return err
	}
	out, errs := l.files(p)
	l.mu.Lock()
	delete(l.exits, p.UID)
	delete(l.asked, p.UID)
	l.mu.Unlock()
	return errors.Join(err, remove(out), remove(errs))
}

func remove(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
