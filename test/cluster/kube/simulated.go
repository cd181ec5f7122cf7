package kube

import (
	"context"
	"embed"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/pki"
	"github.com/bergctf/berg-operator/test/cluster/poll"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

// MaxSimulatedNodes is how many blocks of pod addresses there are.
const MaxSimulatedNodes = 500

//go:embed stages/*.yaml
var stages embed.FS

func simulatedProfile() profile {
	return profile{
		name:       ProfileSimulated,
		parts:      []*build.Part{build.Kwok},
		components: []string{"kwok"},
		identities: func(*Cluster) []pki.Identity {
			return []pki.Identity{{Name: "kwok", Authority: clusterAuthority, User: "kwok", Group: groupMasters}}
		},
		users: []string{"kwok"},
		up:    upSimulated,
	}
}

// kwok plays nodes and pods: the stages of its own release, and ours for pods that misbehave on request.
func (c *Cluster) kwok() (component, error) {
	files, err := filepath.Glob(c.binary(build.Kwok.Name, "stages/*.yaml"))
	if err != nil {
		return component{}, err
	}
	args := []string{
		"--kubeconfig=" + c.path("kubeconfig", "kwok"),
		"--v=WARN",
		"--manage-all-nodes",
		"--cidr=10.128.0.0/9",
		"--node-ip=127.0.0.1",
		"--node-lease-duration-seconds=40",
		"--server-address=127.0.0.1:" + strconv.Itoa(c.port(portKwok)),
		"--config=" + c.path("behaviours.yaml"),
	}
	for _, file := range files {
		args = append(args, "--config="+file)
	}
	return component{name: "kwok", path: c.binary(build.Kwok.Name, "kwok"), args: args}, nil
}

func (c *Cluster) simulatedNodes() string {
	var manifest strings.Builder
	for i := range c.Nodes {
		fmt.Fprintf(&manifest, `---
apiVersion: v1
kind: Node
metadata:
  name: node-%[1]d
  labels:
    kubernetes.io/arch: amd64
    kubernetes.io/os: linux
    kubernetes.io/hostname: node-%[1]d
status:
  capacity: &size
    cpu: 10k
    memory: 100Ti
    ephemeral-storage: 100Ti
    pods: 10k
  allocatable: *size
`, i)
	}
	return manifest.String()
}

// upSimulated starts what is missing and waits until all of it is ready.
func upSimulated(ctx context.Context, c *Cluster, show *progress.Progress) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	behaviours, err := stages.ReadFile("stages/behaviours.yaml")
	if err != nil {
		return err
	}
	if err := disk.WriteFile(c.path("behaviours.yaml"), behaviours, 0o600); err != nil {
		return err
	}
	kwok, err := c.kwok()
	if err != nil {
		return err
	}
	if err := c.bring(ctx, show, "etcd and API server", c.etcd(), c.apiserver(api)); err != nil {
		return err
	}
	err = c.bring(ctx, show, "controllers and scheduler", c.controllerManager(), c.scheduler(), kwok)
	if err != nil {
		return err
	}
	err = show.Step(fmt.Sprintf("%d simulated nodes", c.Nodes), func(detail func(string)) error {
		if err := poll.Until(ctx, func(ctx context.Context) error { return c.apply(ctx, c.simulatedNodes()) }); err != nil {
			return err
		}
		return c.until(ctx, "kwok", func(ctx context.Context) error { return api.NodesReady(ctx, c.Nodes) })
	})
	if err != nil {
		return err
	}
	if err := c.installAPIs(ctx, api, show); err != nil || !c.OptionalAPIs {
		return err
	}
	return show.Step("simulated agents of Cilium", func(func(string)) error {
		if err := c.apply(ctx, simulatedAgents); err != nil {
			return err
		}
		return c.until(ctx, "kwok", func(ctx context.Context) error { return api.DaemonSetReady(ctx, "kube-system", "cilium") })
	})
}

// simulatedAgents are what tells clients of Cilium's API that Cilium runs.
const simulatedAgents = `apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: cilium
  namespace: kube-system
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  template:
    metadata:
      labels: {k8s-app: cilium}
    spec:
      containers:
      - {name: cilium-agent, image: "simulated/cilium:1"}
`
