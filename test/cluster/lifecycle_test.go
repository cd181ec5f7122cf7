package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/kube"
	"github.com/bergctf/berg-operator/test/cluster/poll"
	"github.com/bergctf/berg-operator/test/cluster/process"
)

// runner starts the runner as a process of its own, with clusters in a directory of the test's own
// and the binaries that are built already.
type runner struct {
	t      *testing.T
	places disk.Places
}

func newRunner(t *testing.T, profile string) runner {
	t.Helper()
	if testing.Short() {
		t.Skip("starts clusters: takes too long for -short")
	}
	p, err := disk.Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range kube.PartsOf(profile) {
		dir, err := build.Dir(t.Context(), p, part)
		if err != nil {
			t.Fatal(err)
		}
		if !disk.Exists(dir) {
			t.Skipf("%s is not built, which takes longer than a test may: go run ./test/cluster build --profile %s", part.Name, profile)
		}
	}
	if profile != kube.ProfileSimulated && (os.Geteuid() != 0 || len(kube.MissingPackages(profile)) > 0) {
		t.Skipf("profile %s needs root and the programs of the distribution", profile)
	}
	cache, err := disk.Canonical(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p.Clusters = filepath.Join(cache, "clusters")
	return runner{t: t, places: p}
}

func (r runner) command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(),
		"BERG_CLUSTER_CACHE="+filepath.Dir(r.places.Clusters),
		"BERG_CLUSTER_BIN="+r.places.Binaries,
	)
	return cmd
}

func (r runner) run(args ...string) string {
	r.t.Helper()
	out, err := r.command(args...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("cluster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// traces looks for anything of a cluster, without a use of the code that down and its own check are made of.
func (r runner) traces(name string) []string {
	r.t.Helper()
	dir := r.places.ClusterDir(name)
	var found []string

	entries, err := os.ReadDir("/proc")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		for _, file := range []string{"cmdline", "environ"} {
			content, err := os.ReadFile(filepath.Join("/proc", e.Name(), file))
			if err == nil && strings.Contains(string(content), dir) && e.Name() != fmt.Sprint(os.Getpid()) && e.Name() != "self" && e.Name() != "thread-self" {
				found = append(found, fmt.Sprintf("process %s: %q", e.Name(), content))
				break
			}
		}
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(mountinfo)) {
		if strings.Contains(line, dir) || strings.Contains(line, "berg-"+name+"-") {
			found = append(found, "mount "+line)
		}
	}
	for _, pattern := range []string{"/run/netns/berg-" + name + "-*", "/sys/fs/cgroup/berg-" + name + "-*", "/sys/fs/cgroup/*/berg-" + name + "-*"} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			r.t.Fatal(err)
		}
		found = append(found, matches...)
	}
	if _, err := net.InterfaceByName(kube.LinkName(dir)); err == nil {
		found = append(found, "link "+kube.LinkName(dir))
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		found = append(found, "directory "+dir)
	}
	return found
}

func (r runner) wantNoTrace(name string) {
	r.t.Helper()
	for _, trace := range r.traces(name) {
		r.t.Errorf("left behind: %s", trace)
	}
}

// TestDownAfterKilledUp kills an up at several points of its way and wants down to leave nothing.
func TestDownAfterKilledUp(t *testing.T) {
	for profile, delays := range map[string][]time.Duration{
		kube.ProfileSimulated: {30 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 6 * time.Second},
		kube.ProfileNode:      {20 * time.Millisecond, 60 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond, 3 * time.Second, 8 * time.Second},
		// While Cilium loads its programs, on a machine that is fast enough.
		kube.ProfileNetwork: {25 * time.Second},
	} {
		t.Run(profile, func(t *testing.T) {
			r := newRunner(t, profile)
			name := "killed-" + profile[:4]
			defer func() { _ = r.command("down", "--name", name).Run() }()
			for _, delay := range delays {
				up := r.command("up", "--name", name, "--profile", profile)
				if err := up.Start(); err != nil {
					t.Fatal(err)
				}
				// Not a wait for something to happen: any point will do.
				if err := poll.Wait(t.Context(), delay); err != nil {
					t.Fatal(err)
				}
				if err := up.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = up.Wait()
				before := len(r.traces(name))
				r.run("down", "--name", name)
				t.Logf("killed after %s: %d traces before down", delay, before)
				r.wantNoTrace(name)
				r.run("down", "--name", name)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestDownOfAnEmptyDirectory is about the earliest point at which an up can be killed.
func TestDownOfAnEmptyDirectory(t *testing.T) {
	r := newRunner(t, kube.ProfileSimulated)
	if err := os.MkdirAll(r.places.ClusterDir("empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.run("down", "--name", "empty")
	r.wantNoTrace("empty")
}

// TestDownWhereNamesAreHidden mounts the directory with the names of network namespaces over itself while a cluster is
// up, as "ip netns add" does. All of it happens in a mount namespace of the test's own: others on this machine have
// names there too.
func TestDownWhereNamesAreHidden(t *testing.T) {
	r := newRunner(t, kube.ProfileNode)
	const name = "hidden"
	defer func() { _ = r.command("down", "--name", name).Run() }()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for how, bind := range map[string]string{"alone": "mount --bind", "with all below": "mount --rbind"} {
		script := r.command()
		script.Path = "/bin/sh"
		script.Args = []string{"sh", "-euc", `
			mkdir -p /run/netns
			"$0" up --name "$1" --profile node
			` + bind + ` /run/netns /run/netns
			` + bind + ` /run/netns /run/netns
			"$0" down --name "$1"
			cat /proc/self/mountinfo`, self, name}
		// Go makes all mounts of an unshared namespace private.
		script.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := script.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", how, err, out)
		}
		if strings.Contains(string(out), "/run/netns/berg-"+name+"-") {
			t.Errorf("%s: left behind:\n%s", how, out)
		}
		r.wantNoTrace(name)
	}
}

// TestDownEndsARunningUp wants down to win against an up that still works, as the child of a killed "go run" does.
func TestDownEndsARunningUp(t *testing.T) {
	r := newRunner(t, kube.ProfileSimulated)
	up := r.command("up", "--name", "raced")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := poll.Until(ctx, func(context.Context) error {
		live, err := process.Of(r.places.ClusterDir("raced"))
		if err == nil && len(live) == 0 {
			err = errors.New("nothing was started")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	r.run("down", "--name", "raced")
	if err := up.Wait(); err == nil {
		t.Error("up ended without an error although its cluster was taken away")
	}
	r.wantNoTrace("raced")
}

// TestUpRepairs brings two clusters up side by side, kills a component of one, and wants up to put it back
// and the other to be left alone. A restart does both.
func TestUpRepairs(t *testing.T) {
	r := newRunner(t, kube.ProfileSimulated)
	names := []string{"one", "two"}
	for _, name := range names {
		defer func() {
			r.run("down", "--name", name)
			r.wantNoTrace(name)
		}()
	}
	ups := map[string]*exec.Cmd{}
	for _, name := range names {
		ups[name] = r.command("up", "--name", name, "--nodes", "2")
		ups[name].Stderr = os.Stderr
		if err := ups[name].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for name, up := range ups {
		if err := up.Wait(); err != nil {
			t.Fatalf("up of %s: %v", name, err)
		}
	}
	pids := func(name string) map[string]int {
		t.Helper()
		c, err := kube.Open(r.places, name)
		if err != nil {
			t.Fatal(err)
		}
		pids, err := c.Running()
		if err != nil {
			t.Fatal(err)
		}
		return pids
	}
	one, two := pids("one"), pids("two")

	if out := r.run("up", "--name", "one", "--nodes", "2"); !strings.Contains(out, "is up and healthy") {
		t.Errorf("up of a healthy cluster says\n%s", out)
	}

	if err := syscall.Kill(one["kube-scheduler"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := process.End(ctx, func() ([]int, error) {
		if now := pids("one")["kube-scheduler"]; now != 0 {
			return []int{now}, nil
		}
		return nil, nil
	}, 0); err != nil {
		t.Fatal(err)
	}
	if out, err := r.command("status", "--name", "one").CombinedOutput(); err == nil || !strings.Contains(string(out), "kube-scheduler does not run") {
		t.Errorf("status with a dead component: %v\n%s", err, out)
	}
	r.run("up", "--name", "one", "--nodes", "2")
	r.run("status", "--name", "one")
	for name, pid := range pids("one") {
		if (pid != one[name]) != (name == "kube-scheduler") {
			t.Errorf("%s of one: process %d before, %d now", name, one[name], pid)
		}
	}
	one = pids("one")
	r.run("restart", "--name", "one", "kube-apiserver")
	r.run("status", "--name", "one")
	for name, pid := range pids("one") {
		if (pid != one[name]) != (name == "kube-apiserver") {
			t.Errorf("after a restart of the API server, %s of one: process %d before, %d now", name, one[name], pid)
		}
	}
	// As after a stop of the machine: no component runs, each has a log.
	for _, pid := range pids("one") {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	r.run("up", "--name", "one", "--nodes", "2")
	r.run("status", "--name", "one")
	for name, pid := range pids("two") {
		if pid != two[name] {
			t.Errorf("%s of two: process %d before, %d now", name, two[name], pid)
		}
	}
	if out := r.run("kubectl", "--name", "two", "get", "nodes", "--output", "name"); out != "node/node-0\nnode/node-1\n" {
		t.Errorf("nodes of two: %q", out)
	}
}
