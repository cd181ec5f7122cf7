// Package kube brings clusters up, repairs them, and takes them down.
//
// A cluster is a control plane and what its profile adds. To add a profile, write a file such as olm.go or network.go
// with a value of type profile, and name it in profiles; usage of the command and the README tell of it.
package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/disk"
)

// Cluster is what the runner must remember of a cluster; everything else is observed.
type Cluster struct {
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
	// Audit and OptionalAPIs are those of the first up: a later one repairs, it does not change.
	Audit        bool `json:"audit,omitempty"`
	OptionalAPIs bool `json:"optionalAPIs"`
	// Binaries maps a component to the directory it was built into when the cluster was made.
	Binaries map[string]string `json:"binaries"`

	// Complete is set when certificates and all else that is made only once are on disk.
	Complete bool `json:"complete"`

	dir string
	// lived has the names of the components that this run has started or found running.
	lived sync.Map
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

// hasNode reports whether there is a real node, rather than simulated ones.
func (c *Cluster) hasNode() bool { return c.Profile != ProfileSimulated }

// Kubeconfig is the path of the administrator's.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig", "admin") }

func (c *Cluster) binary(component, name string) string {
	return filepath.Join(c.Binaries[component], name)
}

func (c *Cluster) kubectl() string { return c.binary(build.ControlPlane.Name, "kubectl") }

const stateFile = "cluster.json"

// Open returns the cluster with a name, running or not. The error is ErrNoCluster where there is none.
func Open(p disk.Places, name string) (*Cluster, error) {
	c := &Cluster{dir: p.ClusterDir(name)}
	raw, err := os.ReadFile(c.path(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w %q: make it with: go run ./test/cluster up --name %s", ErrNoCluster, name, name)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("%s: %w: remove the cluster with down", c.path(stateFile), err)
	}
	return c, nil
}

// ErrNoCluster says that no cluster has the name.
var ErrNoCluster = errors.New("there is no cluster")

func (c *Cluster) save() error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteFile(c.path(stateFile), append(raw, '\n'), 0o600)
}
