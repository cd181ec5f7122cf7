package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/host"
	"github.com/bergctf/berg-operator/test/cluster/poll"
	"github.com/bergctf/berg-operator/test/cluster/process"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

// component is one long-running program of a cluster.
type component struct {
	name string
	path string
	args []string
	env  []string
	// cloneflags are the namespaces that it gets for itself, outside of those of the node.
	cloneflags uintptr
	// ready is polled until it returns nil.
	ready func(context.Context) error
	// hint is the remedy to print when it does not come up.
	hint string
}

func (c *Cluster) logFile(component string) string { return c.path("logs", component+".log") }

// start runs a component detached from the runner: its own session, its output in a file.
func (c *Cluster) start(p component) error {
	log, err := os.OpenFile(c.logFile(p.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()

	cmd, err := c.command(p)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: p.cloneflags}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	c.lived.Store(p.name, true)
	// Reaped when it ends during this run, so that a dead component is not taken for a live one.
	go func() { _ = cmd.Wait() }()
	return nil
}

// command prepares a component to run where the cluster's components run.
func (c *Cluster) command(p component) (*exec.Cmd, error) {
	if !c.hasNode() || p.cloneflags != 0 {
		return c.bare(p, p.path, p.args), nil
	}
	path, args, err := c.inside(p.path, p.args)
	return c.bare(p, path, args), err
}

// bare prepares a component with an environment of its own: variables that the user has exported,
// of a proxy for example, must not change how a cluster behaves.
func (c *Cluster) bare(p component, path string, args []string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = c.dir
	if percent := os.Getenv("BERG_CLUSTER_GOGC"); percent != "" {
		p.env = append(slices.Clone(p.env), "GOGC="+percent)
	}
	cmd.Env = append([]string{
		"PATH=" + host.Path,
		"HOME=" + c.path("home"),
		"TMPDIR=" + c.path("tmp"),
		process.MarkCluster + "=" + c.dir,
		process.MarkComponent + "=" + p.name,
	}, p.env...)
	return cmd
}

// Running maps the components that run to their processes.
func (c *Cluster) Running() (map[string]int, error) {
	all, err := process.Of(c.dir)
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, p := range all {
		if p.Leader {
			pids[p.Component] = p.PID
		}
	}
	return pids, nil
}

// bring starts the components that do not run, concurrently, and then waits for each.
func (c *Cluster) bring(ctx context.Context, show *progress.Progress, what string, components ...component) error {
	return show.Step(what, func(detail func(string)) error {
		running, err := c.Running()
		if err != nil {
			return err
		}
		for _, p := range components {
			if running[p.name] != 0 {
				c.lived.Store(p.name, true)
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

// until waits for check, and no longer than every component lives that this run has started or found running: those of
// a machine that has stopped have logs and no process, and their turn comes.
// When that is all there is to say, the log of the component named here may tell why.
func (c *Cluster) until(ctx context.Context, component string, check func(context.Context) error) error {
	begin := time.Now()
	err := poll.Until(ctx, func(ctx context.Context) error {
		err := check(ctx)
		// A process carries its mark from exec on: give it a moment to get there.
		if err == nil || time.Since(begin) < time.Second {
			return err
		}
		running, lookup := c.Running()
		if lookup != nil {
			return err
		}
		for _, name := range c.components() {
			if _, lived := c.lived.Load(name); lived && running[name] == 0 {
				component = name
				return poll.Final(fmt.Errorf("%s has ended: %w", name, err))
			}
		}
		return err
	})
	if err == nil {
		return nil
	}
	log := c.logFile(component)
	return fmt.Errorf("%w\nthe end of %s:\n%s", err, log, process.Tail(log, 8))
}
