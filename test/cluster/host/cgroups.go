package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/poll"
	"github.com/bergctf/berg-operator/test/cluster/process"
)

// hierarchies returns where control groups are mounted: one place for version 2, one for each controller of version 1.
func hierarchies() ([]Mount, error) {
	all, err := Mounts()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(m Mount) bool { return m.Kind != "cgroup" && m.Kind != "cgroup2" }), nil
}

// The control group of a cluster holds two: this one for its own programs, and the kubelet's for pods.
// Version 2 forbids processes in a group that has groups below it.
const systemGroup = "system"

// CreateGroups makes the control groups of a cluster in every hierarchy.
func CreateGroups(id string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no control groups are mounted: mount -t cgroup2 none /sys/fs/cgroup")
	}
	for _, h := range all {
		if h.Kind == "cgroup2" {
			delegate(h.Point)
		}
		for _, dir := range []string{filepath.Join(h.Point, id), filepath.Join(h.Point, id, systemGroup)} {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("control group: %w: profile node needs them writable", err)
			}
			if h.Kind == "cgroup" && slices.Contains(strings.Split(h.options, ","), "cpuset") {
				// A new group of this controller has no processor, and takes no process until it has.
				if err := inheritCPUSet(dir); err != nil {
					return err
				}
			}
			if h.Kind == "cgroup2" && filepath.Base(dir) == id {
				delegate(dir)
			}
		}
	}
	return nil
}

func inheritCPUSet(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(dir, "..", file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// delegate enables all controllers of dir for the groups in it. It ignores errors: some controllers may be in use by
// version 1, and the kubelet itself reports those that it misses.
func delegate(dir string) {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(controllers)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// JoinGroups moves this process, and what it becomes, into the cluster's own groups.
func JoinGroups(id string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		procs := filepath.Join(h.Point, id, systemGroup, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Groups returns every existing control group of the cluster, in all hierarchies, the innermost first.
func Groups(id string) ([]string, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, h := range all {
		var tree []string
		err := filepath.WalkDir(filepath.Join(h.Point, id), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				tree = append(tree, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		slices.Reverse(tree)
		dirs = append(dirs, tree...)
	}
	return dirs, nil
}

// Members finds the processes in the cluster's control groups, or in those of its pods alone.
func Members(id string, podsOnly bool) process.Find {
	return func() ([]int, error) {
		dirs, err := Groups(id)
		if err != nil {
			return nil, err
		}
		seen := map[int]bool{}
		for _, dir := range dirs {
			if podsOnly && !strings.Contains(dir, "/"+id+"/kubepods") {
				continue
			}
			// A frozen process cannot die.
			_ = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0o644)
			raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			if err != nil {
				continue
			}
			for _, field := range strings.Fields(string(raw)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 && pid != os.Getpid() {
					seen[pid] = true
				}
			}
		}
		pids := make([]int, 0, len(seen))
		for pid := range seen {
			pids = append(pids, pid)
		}
		slices.Sort(pids)
		return pids, nil
	}
}

// RemoveGroups removes the cluster's control groups. A process leaves its group some time after its end.
func RemoveGroups(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return poll.Until(ctx, func(context.Context) error {
		dirs, err := Groups(id)
		if err != nil {
			return err
		}
		var failed error
		for _, dir := range dirs {
			if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				failed = err
			}
		}
		return failed
	})
}
