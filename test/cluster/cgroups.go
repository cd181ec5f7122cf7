package main

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
	"syscall"
	"time"
)

// mount is one line of /proc/self/mountinfo.
type mount struct {
	point   string
	kind    string
	options string
}

func mounts() ([]mount, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(raw)), nil
}

// parseMounts reads mountinfo, see proc_pid_mountinfo(5): a number of optional fields ends with a lone "-".
func parseMounts(mountinfo string) []mount {
	var all []mount
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if dash < 6 || len(fields) < dash+4 {
			continue
		}
		all = append(all, mount{
			point:   unescapeMount(fields[4]),
			kind:    fields[dash+1],
			options: fields[dash+3],
		})
	}
	return all
}

// unescapeMount undoes the kernel's octal escapes of blanks and backslashes.
func unescapeMount(s string) string {
	for _, r := range []struct{ escape, char string }{{`\040`, " "}, {`\011`, "\t"}, {`\012`, "\n"}, {`\134`, `\`}} {
		s = strings.ReplaceAll(s, r.escape, r.char)
	}
	return s
}

// below reports whether path is dir or lies in it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// mountsBelow returns the mount points in dir, deepest first, as often as something is mounted there.
func mountsBelow(all []mount, dir string) []string {
	var points []string
	for _, m := range all {
		if below(m.point, dir) {
			points = append(points, m.point)
		}
	}
	// Of several on one point the latest is listed last and must go first.
	slices.Reverse(points)
	slices.SortStableFunc(points, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return points
}

// unmountBelow unmounts everything in dir. What is busy is detached: its users are gone or about to go.
func unmountBelow(dir string) error {
	all, err := mounts()
	if err != nil {
		return err
	}
	for _, point := range mountsBelow(all, dir) {
		err := syscall.Unmount(point, 0)
		if errors.Is(err, syscall.EBUSY) {
			err = syscall.Unmount(point, syscall.MNT_DETACH)
		}
		if err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return nil
}

// hierarchies returns where control groups are mounted: one place for version 2, one for each controller of version 1.
func hierarchies() ([]mount, error) {
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(m mount) bool { return m.kind != "cgroup" && m.kind != "cgroup2" }), nil
}

// The control group of a cluster holds two: this one for its own programs, and the kubelet's for pods.
// Version 2 forbids processes in a group that has groups below it.
const systemGroup = "system"

// createGroups makes the control groups of a cluster in every hierarchy.
func createGroups(id string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no control groups are mounted: mount -t cgroup2 none /sys/fs/cgroup")
	}
	for _, h := range all {
		if h.kind == "cgroup2" {
			delegate(h.point)
		}
		for _, dir := range []string{filepath.Join(h.point, id), filepath.Join(h.point, id, systemGroup)} {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("control group: %w: profile node needs them writable", err)
			}
			if h.kind == "cgroup" && slices.Contains(strings.Split(h.options, ","), "cpuset") {
				// A new group of this controller has no processor, and takes no process until it has.
				if err := inheritCPUSet(dir); err != nil {
					return err
				}
			}
			if h.kind == "cgroup2" && filepath.Base(dir) == id {
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

// delegate turns on for the groups in dir whatever controllers dir has. Which of them a kubelet insists on
// it says itself, and some may be in use by version 1: no failure here.
func delegate(dir string) {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, controller := range strings.Fields(string(controllers)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
}

// joinGroups moves this process, and what it becomes, into the cluster's own groups.
func joinGroups(id string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		procs := filepath.Join(h.point, id, systemGroup, "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// groups returns every existing control group of the cluster, in all hierarchies, the innermost first.
func groups(id string) ([]string, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, h := range all {
		var tree []string
		err := filepath.WalkDir(filepath.Join(h.point, id), func(path string, d fs.DirEntry, err error) error {
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

// members finds the processes in the cluster's control groups, or in those of its pods alone.
func members(id string, podsOnly bool) find {
	return func() ([]int, error) {
		dirs, err := groups(id)
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

// removeGroups removes the cluster's control groups. A process leaves its group some time after its end.
func removeGroups(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return poll(ctx, func(context.Context) error {
		dirs, err := groups(id)
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
