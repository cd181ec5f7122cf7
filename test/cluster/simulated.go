package main

import (
	"context"
	"embed"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// maxSimulatedNodes is how many blocks of pod addresses there are.
const maxSimulatedNodes = 500

//go:embed stages/*.yaml
var stages embed.FS

// kwok plays nodes and pods: the stages of its own release, and ours for pods that misbehave on request.
func (c *cluster) kwok() (component, error) {
	files, err := filepath.Glob(c.binary(kwok.name, "stages/*.yaml"))
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
	return component{name: "kwok", path: c.binary(kwok.name, "kwok"), args: args}, nil
}

func (c *cluster) simulatedNodes() string {
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
func upSimulated(ctx context.Context, c *cluster, progress *progress) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	behaviours, err := stages.ReadFile("stages/behaviours.yaml")
	if err != nil {
		return err
	}
	if err := writeFile(c.path("behaviours.yaml"), behaviours, 0o600); err != nil {
		return err
	}
	kwok, err := c.kwok()
	if err != nil {
		return err
	}
	if err := c.bring(ctx, progress, "etcd and API server", c.etcd(), c.apiserver(api)); err != nil {
		return err
	}
	err = c.bring(ctx, progress, "controllers and scheduler", c.controllerManager(), c.scheduler(), kwok)
	if err != nil {
		return err
	}
	err = progress.step(fmt.Sprintf("%d simulated nodes", c.Nodes), func(detail func(string)) error {
		if err := poll(ctx, func(ctx context.Context) error { return c.apply(ctx, c.simulatedNodes()) }); err != nil {
			return err
		}
		return c.until(ctx, "kwok", func(ctx context.Context) error { return api.nodesReady(ctx, c.Nodes) })
	})
	if err != nil {
		return err
	}
	return c.installAPIs(ctx, api, progress)
}

// bring starts those of the components that do not run, all at once, and then waits for each.
func (c *cluster) bring(ctx context.Context, progress *progress, what string, components ...component) error {
	return progress.step(what, func(detail func(string)) error {
		running, err := c.running()
		if err != nil {
			return err
		}
		for _, p := range components {
			if running[p.name] != 0 {
				continue
			}
			if err := c.start(p); err != nil {
				return err
			}
		}
		for _, p := range components {
			if p.ready == nil {
				continue
			}
			detail("waiting for " + p.name)
			if err := c.until(ctx, p.name, p.ready); err != nil {
				if p.hint != "" {
					err = fmt.Errorf("%w\n%s", err, p.hint)
				}
				return err
			}
		}
		return nil
	})
}

// until waits for check, and no longer than every component that was started lives.
// When that is all there is to say, the log of the component named here may tell why.
func (c *cluster) until(ctx context.Context, component string, check func(context.Context) error) error {
	begin := time.Now()
	err := poll(ctx, func(ctx context.Context) error {
		err := check(ctx)
		// A process carries its mark from exec on: give it a moment to get there.
		if err == nil || time.Since(begin) < time.Second {
			return err
		}
		running, lookup := c.running()
		if lookup != nil {
			return err
		}
		for _, name := range c.components() {
			if exists(c.logFile(name)) && running[name] == 0 {
				component = name
				return &finalError{fmt.Errorf("%s has ended: %w", name, err)}
			}
		}
		return err
	})
	if err == nil {
		return nil
	}
	log := c.logFile(component)
	return fmt.Errorf("%w\nthe end of %s:\n%s", err, log, tail(log, 8))
}
