package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// ValidName keeps names short enough for control groups, network namespaces and labels alike.
var ValidName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,19}$`)

// Places are the directories the runner works with.
type Places struct {
	Repository string // the checkout
	Components string // test/cluster/components in it
	Binaries   string // one directory per built component
	Clusters   string // one directory per cluster
}

// Find returns the places of this user: the repository around the working directory, and below BERG_CLUSTER_CACHE and
// BERG_CLUSTER_BIN the rest.
func Find() (Places, error) {
	repository, err := FindRepository()
	if err != nil {
		return Places{}, err
	}
	cache := os.Getenv("BERG_CLUSTER_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return Places{}, fmt.Errorf("no cache directory: %w: set BERG_CLUSTER_CACHE", err)
		}
		cache = filepath.Join(user, "berg-operator")
	}
	binaries := os.Getenv("BERG_CLUSTER_BIN")
	if binaries == "" {
		binaries = filepath.Join(cache, "bin")
	}
	p := Places{
		Repository: repository,
		Components: filepath.Join(repository, "test", "cluster", "components"),
		Clusters:   filepath.Join(cache, "clusters"),
		Binaries:   binaries,
	}
	// A process is recognised by the state directory in its environment: one directory, one spelling.
	for _, dir := range []*string{&p.Clusters, &p.Binaries} {
		if *dir, err = Canonical(*dir); err != nil {
			return Places{}, err
		}
	}
	return p, nil
}

// Canonical returns the absolute path without symbolic links of a directory that need not exist yet.
func Canonical(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		parent, err := Canonical(filepath.Dir(dir))
		return filepath.Join(parent, filepath.Base(dir)), err
	}
	return resolved, err
}

// FindRepository returns the checkout that the working directory is in.
func FindRepository() (string, error) {
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

// ClusterDir is the state directory of the cluster with a name.
func (p Places) ClusterDir(name string) string { return filepath.Join(p.Clusters, name) }

// Names returns every cluster of which anything is on disk, also one that never came up.
func (p Places) Names() ([]string, error) {
	entries, err := os.ReadDir(p.Clusters)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && ValidName.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
