package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/process"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

// Restart kills a component and starts it again, as after a crash. What it started in turn lives on.
func Restart(ctx context.Context, p disk.Places, opts Options, component string, show *progress.Progress) error {
	c, err := Open(p, opts.Name)
	if err != nil {
		return err
	}
	if !slices.Contains(c.components(), component) {
		return fmt.Errorf("cluster %s has no component %q, only %s", c.Name, component, strings.Join(c.components(), ", "))
	}
	dead := func() ([]int, error) {
		running, err := c.Running()
		if err != nil || running[component] == 0 {
			return nil, err
		}
		return []int{running[component]}, nil
	}
	if err := process.End(ctx, dead, 0); err != nil {
		return err
	}
	opts.Profile, opts.Nodes, opts.Audit, opts.WithoutOptionalAPIs = c.Profile, max(c.Nodes, 1), c.Audit, !c.OptionalAPIs
	return Up(ctx, p, opts, show)
}
