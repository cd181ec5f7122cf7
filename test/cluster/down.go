package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// down removes a cluster. It does not need to know how far an up came: it looks for everything a cluster can have.
func down(ctx context.Context, p places, name string, progress *progress) error {
	dir := p.clusterDir(name)
	present, err := leftovers(dir, name)
	if err != nil {
		return err
	}
	// An up that was killed early leaves an empty directory.
	if len(present) == 0 && !exists(dir) {
		progress.say("There is no cluster %s: nothing to do", name)
		return nil
	}
	begin := time.Now()
	lock, err := takeOver(ctx, dir, progress)
	if err != nil {
		return err
	}
	defer lock.release()
	if err := remove(ctx, dir, name, removeDirectory, progress); err != nil {
		return err
	}
	progress.say("Cluster %s is gone (%s)", name, elapsed(begin))
	return nil
}

// takeOver locks a cluster that is to go. An up that still works on it is ended first: when "go run" is killed,
// the program that it ran lives on, and would put back what down removes.
func takeOver(ctx context.Context, dir string, progress *progress) (*lock, error) {
	const patience = 10 * time.Second

	begin := time.Now()
	told := 0
	for {
		// Without its directory there may still be processes of the cluster: the lock needs a place.
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		lock, holder, err := lockDirectory(dir)
		if !errors.Is(err, errLocked) {
			return lock, err
		}
		if isDown(holder) {
			// It does what we want: wait for it.
			if err := wait(ctx, 50*time.Millisecond); err != nil {
				return nil, err
			}
			continue
		}
		switch late := time.Since(begin) > patience; {
		case holder == 0 && late:
			return nil, fmt.Errorf("%s is locked by a process that cannot be seen from here", dir)
		case holder > 0 && late:
			_ = syscall.Kill(holder, syscall.SIGKILL)
		case holder > 0 && holder != told:
			told = holder
			progress.say("Ending process %d, which works on this cluster", holder)
			_ = syscall.Kill(holder, syscall.SIGTERM)
		}
		if time.Since(begin) > 2*patience {
			return nil, fmt.Errorf("process %d holds %s and does not end", holder, dir)
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
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
func remove(ctx context.Context, dir, name string, directory fate, progress *progress) error {
	present, err := leftovers(dir, name)
	if err != nil {
		return err
	}
	if len(present) == 0 && (directory == keepDirectory || !exists(dir)) {
		return nil
	}
	work := func(func(string)) error {
		if err := stopNode(ctx, dir, name); err != nil {
			return err
		}
		if err := endProcesses(ctx, marked(dir, everything), 2*time.Second); err != nil {
			return err
		}
		if err := removeNode(ctx, dir, name); err != nil {
			return err
		}
		return removeAll(dir, directory)
	}
	if err := progress.step("removing cluster "+name, work); err != nil {
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

func everything(string) bool { return true }

// marked finds the processes of a cluster by their mark.
func marked(dir string, wanted func(component string) bool) find {
	return func() ([]int, error) {
		all, err := processes(dir)
		if err != nil {
			return nil, err
		}
		var pids []int
		for _, p := range all {
			if wanted(p.component) {
				pids = append(pids, p.pid)
			}
		}
		return pids, nil
	}
}

// leftovers lists everything of a cluster that exists, one line each: processes, mounts, network namespace,
// link, control groups, files. An empty state directory is nothing: it only carries a lock.
func leftovers(dir, name string) ([]string, error) {
	var found []string
	live, err := processes(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range live {
		found = append(found, fmt.Sprintf("process %d (%s)", p.pid, p.component))
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
