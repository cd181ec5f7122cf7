package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// restart kills a component and starts it again, as after a crash. What it started in turn lives on.
func restart(ctx context.Context, p places, opts options, component string, progress *progress) error {
	c, err := p.loadCluster(opts.name)
	if err != nil {
		return err
	}
	if !slices.Contains(c.components(), component) {
		return fmt.Errorf("cluster %s has no component %q, only %s", c.Name, component, strings.Join(c.components(), ", "))
	}
	dead := func() ([]int, error) {
		running, err := c.running()
		if err != nil || running[component] == 0 {
			return nil, err
		}
		return []int{running[component]}, nil
	}
	if err := endProcesses(ctx, dead, 0); err != nil {
		return err
	}
	opts.profile, opts.nodes, opts.audit, opts.withoutOptionalAPIs = c.Profile, max(c.Nodes, 1), c.Audit, !c.OptionalAPIs
	return up(ctx, p, opts, progress)
}
