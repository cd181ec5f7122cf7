package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	profileSimulated = "simulated"
	profileNode      = "node"
	// profileOLM is profileNode with the Operator Lifecycle Manager on it.
	profileOLM = "olm"
	// profileNetwork is profileNode with Cilium, a Gateway, and a network outside.
	profileNetwork = "network"
)

// validName keeps names short enough for control groups, network namespaces and labels alike.
var validName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,19}$`)

// places are the directories the runner works with.
type places struct {
	repository string // the checkout
	components string // test/cluster/components in it
	binaries   string // one directory per built component
	clusters   string // one directory per cluster
}

func findPlaces() (places, error) {
	repository, err := findRepository()
	if err != nil {
		return places{}, err
	}
	cache := os.Getenv("BERG_CLUSTER_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return places{}, fmt.Errorf("no cache directory: %w: set BERG_CLUSTER_CACHE", err)
		}
		cache = filepath.Join(user, "berg-operator")
	}
	binaries := os.Getenv("BERG_CLUSTER_BIN")
	if binaries == "" {
		binaries = filepath.Join(cache, "bin")
	}
	p := places{
		repository: repository,
		components: filepath.Join(repository, "test", "cluster", "components"),
		clusters:   filepath.Join(cache, "clusters"),
		binaries:   binaries,
	}
	// A process is recognised by the state directory in its environment: one directory, one spelling.
	for _, dir := range []*string{&p.clusters, &p.binaries} {
		if *dir, err = canonical(*dir); err != nil {
			return places{}, err
		}
	}
	return p, nil
}

// canonical returns the absolute path without symbolic links of a directory that need not exist yet.
func canonical(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		parent, err := canonical(filepath.Dir(dir))
		return filepath.Join(parent, filepath.Base(dir)), err
	}
	return resolved, err
}

func findRepository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "cluster", "components", "kubernetes", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside a checkout of the repository: change into one", start)
		}
	}
}

// cluster is what the runner must remember of a cluster; everything else is observed.
type cluster struct {
	Name    string    `json:"name"`
	Profile string    `json:"profile"`
	Created time.Time `json:"created"`
	// BasePort is the first of portsPerCluster consecutive ports on 127.0.0.1; simulated only.
	BasePort int `json:"basePort,omitempty"`
	// Subnet is the n of 198.18.n.0/30, which joins the machine and the node; node only.
	Subnet int `json:"subnet,omitempty"`
	// Bandwidth is whether the kernel can limit the traffic of pods; node only.
	Bandwidth bool `json:"bandwidth,omitempty"`
	// Nodes is how many there are; simulated only.
	Nodes int `json:"nodes,omitempty"`
	// Audit and OptionalAPIs are those of the first up: a later one mends, it does not change.
	Audit        bool `json:"audit,omitempty"`
	OptionalAPIs bool `json:"optionalAPIs"`
	// Binaries maps a component to the directory it was built into when the cluster was made.
	Binaries map[string]string `json:"binaries"`

	// Complete is set when certificates and all else that is made only once are on disk.
	Complete bool `json:"complete"`

	dir string
}

func (c *cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

// hasNode reports whether there is a real node, rather than simulated ones.
func (c *cluster) hasNode() bool { return c.Profile != profileSimulated }

func (c *cluster) kubeconfig() string { return c.path("kubeconfig", "admin") }

func (c *cluster) binary(component, name string) string {
	return filepath.Join(c.Binaries[component], name)
}

func (c *cluster) kubectl() string { return c.binary(controlPlane.name, "kubectl") }

func (p places) clusterDir(name string) string { return filepath.Join(p.clusters, name) }

const stateFile = "cluster.json"

func (p places) loadCluster(name string) (*cluster, error) {
	c := &cluster{dir: p.clusterDir(name)}
	raw, err := os.ReadFile(c.path(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w %q: make it with: go run ./test/cluster up --name %s", errNoCluster, name, name)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("%s: %w: remove the cluster with down", c.path(stateFile), err)
	}
	return c, nil
}

var errNoCluster = errors.New("there is no cluster")

func (c *cluster) save() error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(c.path(stateFile), append(raw, '\n'), 0o600)
}

// writeFile replaces a file at once, so that whoever is killed half-way leaves the old one or the new one.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// names returns every cluster of which anything is on disk, also one that never came up.
func (p places) names() ([]string, error) {
	entries, err := os.ReadDir(p.clusters)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && validName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// lock holds a directory by flock(2). The kernel releases it with the process, however that ends.
type lock struct{ dir *os.File }

var errLocked = errors.New("locked")

// lockDirectory takes the lock on a directory or returns errLocked together with the process that holds it.
func lockDirectory(path string) (*lock, int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		defer f.Close()
		holder, err := lockHolder(f)
		if err != nil {
			return nil, 0, err
		}
		return nil, holder, errLocked
	}
	if err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("flock %s: %w", path, err)
	}
	// The directory may have been removed, and made anew, between open and flock.
	opened, err1 := f.Stat()
	current, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(opened, current) {
		f.Close()
		return nil, 0, errLocked
	}
	return &lock{dir: f}, 0, nil
}

func (l *lock) release() {
	if l != nil {
		l.dir.Close()
	}
}

// lockHolder returns the process that holds a file by flock(2), or 0 when the kernel names none.
func lockHolder(f *os.File) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: no inode", f.Name())
	}
	raw, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0, err
	}
	return parseLockHolder(string(raw), st.Dev, st.Ino), nil
}

// parseLockHolder reads /proc/locks: "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF".
func parseLockHolder(locks string, device, inode uint64) int {
	major := (device>>8)&0xfff | (device>>32)&^uint64(0xfff)
	minor := device&0xff | (device>>12)&^uint64(0xff)
	file := fmt.Sprintf("%02x:%02x:%d", major, minor, inode)
	for line := range strings.Lines(locks) {
		fields := strings.Fields(line)
		if i := slices.Index(fields, "FLOCK"); i != 1 || len(fields) < 6 || fields[5] != file {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(fields[4], "%d", &pid); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
