package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/poll"
	"github.com/bergctf/berg-operator/test/cluster/process"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

// Down removes a cluster. It does not need to know how far an up came: it looks for everything a cluster can have.
func Down(ctx context.Context, p disk.Places, name string, show *progress.Progress) error {
	dir := p.ClusterDir(name)
	present, err := leftovers(dir, name)
	if err != nil {
		return err
	}
	// An up that was killed early leaves an empty directory.
	if len(present) == 0 && !disk.Exists(dir) {
		show.Say("There is no cluster %s: nothing to do", name)
		return nil
	}
	begin := time.Now()
	lock, err := takeOver(ctx, dir, show)
	if err != nil {
		return err
	}
	defer lock.Release()
	if err := remove(ctx, dir, name, removeDirectory, show); err != nil {
		return err
	}
	show.Say("Cluster %s is gone (%s)", name, progress.Elapsed(begin))
	return nil
}

// takeOver locks a cluster that is to go. An up that still works on it is ended first: when "go run" is killed,
// the program that it ran lives on, and would put back what down removes.
func takeOver(ctx context.Context, dir string, show *progress.Progress) (*disk.Lock, error) {
	const timeout = 10 * time.Second

	begin := time.Now()
	reported := 0
	for {
		// Without its directory there may still be processes of the cluster: the lock needs a place.
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		lock, holder, err := disk.TryLock(dir)
		if !errors.Is(err, disk.ErrLocked) {
			return lock, err
		}
		if isDown(holder) {
			// It does what we want: wait for it.
			if err := poll.Wait(ctx, 50*time.Millisecond); err != nil {
				return nil, err
			}
			continue
		}
		switch late := time.Since(begin) > timeout; {
		case holder == 0 && late:
			return nil, fmt.Errorf("%s is locked by a process that cannot be seen from here", dir)
		case holder > 0 && late:
			_ = syscall.Kill(holder, syscall.SIGKILL)
		case holder > 0 && holder != reported:
			reported = holder
			show.Say("Ending process %d, which works on this cluster", holder)
			_ = syscall.Kill(holder, syscall.SIGTERM)
		}
		if time.Since(begin) > 2*timeout {
			return nil, fmt.Errorf("process %d holds %s and does not end", holder, dir)
		}
		if err := poll.Wait(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// isDown tells whether a process is another down, which ends by itself.
func isDown(pid int) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(cmdline), "\x00")
	return len(args) > 1 && args[1] == "down"
}

type fate bool

const (
	removeDirectory fate = false
	// keepDirectory empties the state directory but leaves it in place, since it carries the caller's lock.
	keepDirectory fate = true
)

// remove ends and removes everything a cluster can have, and then looks whether that is true.
func remove(ctx context.Context, dir, name string, directory fate, show *progress.Progress) error {
	present, err := leftovers(dir, name)
	if err != nil {
		return err
	}
	if len(present) == 0 && (directory == keepDirectory || !disk.Exists(dir)) {
		return nil
	}
	work := func(func(string)) error {
		if err := stopNode(ctx, dir, name); err != nil {
			return err
		}
		if err := process.End(ctx, process.Marked(dir, process.Everything), 2*time.Second); err != nil {
			return err
		}
		if err := removeNode(ctx, dir, name); err != nil {
			return err
		}
		return removeAll(dir, directory)
	}
	if err := show.Step("removing cluster "+name, work); err != nil {
		return err
	}
	if present, err = leftovers(dir, name); err != nil {
		return err
	}
	if len(present) > 0 {
		return fmt.Errorf("cluster %s was taken down and yet there remain:\n  %s", name, strings.Join(present, "\n  "))
	}
	return nil
}

func removeAll(dir string, directory fate) error {
	if directory == removeDirectory {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(dir + "/" + e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// leftovers lists everything of a cluster that exists, one line each: processes, mounts, network namespace,
// link, control groups, files. An empty state directory is nothing: it only carries a lock.
func leftovers(dir, name string) ([]string, error) {
	var found []string
	live, err := process.Of(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range live {
		found = append(found, fmt.Sprintf("process %d (%s)", p.PID, p.Component))
	}
	node, err := nodeLeftovers(dir, name)
	if err != nil {
		return nil, err
	}
	found = append(found, node...)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if len(entries) > 0 {
		found = append(found, fmt.Sprintf("%d files and directories in %s", len(entries), dir))
	}
	return found, nil
}
