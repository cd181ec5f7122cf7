package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/client"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

// Options say what a cluster is to be.
type Options struct {
	Name                string        // see disk.ValidName
	Profile             string        // one of Profiles
	Nodes               int           // simulated ones, 1 to MaxSimulatedNodes
	Audit               bool          // write an audit log of every request, without bodies
	WithoutOptionalAPIs bool          // do not install the Cilium and Gateway APIs
	Timeout             time.Duration // give up after it; what Build takes is not counted
}

// Up makes a cluster, or repairs one that is there.
func Up(ctx context.Context, p disk.Places, opts Options, show *progress.Progress) error {
	begin := time.Now()
	if _, known := findProfile(opts.Profile); !known {
		return fmt.Errorf("there is no profile %q", opts.Profile)
	}
	if opts.Profile != ProfileSimulated {
		if err := nodePreconditions(ctx, opts.Profile, show); err != nil {
			return err
		}
	}
	binaries, err := Build(ctx, p, opts.Profile, show)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.ClusterDir(opts.Name), 0o700); err != nil {
		return err
	}
	lock, holder, err := disk.TryLock(p.ClusterDir(opts.Name))
	if errors.Is(err, disk.ErrLocked) {
		return fmt.Errorf("process %d is working on cluster %s: wait for it, or end it", holder, opts.Name)
	}
	if err != nil {
		return err
	}
	defer lock.Release()

	ctx, cancel := context.WithTimeoutCause(ctx, opts.Timeout, fmt.Errorf("not ready after %s: --timeout gives it longer", opts.Timeout))
	defer cancel()

	c, err := Open(p, opts.Name)
	switch {
	case errors.Is(err, ErrNoCluster) || err == nil && !c.Complete:
		show.Say("Cluster %s, profile %s", opts.Name, opts.Profile)
		if c, err = create(ctx, p, opts, binaries, show); err != nil {
			return err
		}
	case err != nil:
		return err
	case c.Profile != opts.Profile:
		return fmt.Errorf("cluster %s exists with profile %s: take it down first, or choose another --name", c.Name, c.Profile)
	default:
		for name, dir := range binaries {
			if c.Binaries[name] != dir {
				show.Say("Cluster %s was made from other sources of %s: down and up renew it", c.Name, name)
			}
		}
		if opts.Audit != c.Audit || opts.WithoutOptionalAPIs == c.OptionalAPIs || c.Nodes > 0 && opts.Nodes != c.Nodes {
			show.Say("Cluster %s was made with other options: down and up change them", c.Name)
		}
		if problems := c.problems(ctx); len(problems) == 0 {
			show.Say("Cluster %s is up and healthy (checked in %s)", c.Name, progress.Elapsed(begin))
			return nil
		} else if c, err = repair(ctx, p, c, opts, binaries, problems, show); err != nil {
			return err
		}
	}

	if err := c.profile().up(ctx, c, show); err != nil {
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return fmt.Errorf("%w\nup again repairs what is missing, down removes what is there", err)
	}
	show.Say("Cluster %s is ready after %s", c.Name, progress.Elapsed(begin))
	show.Say("  export KUBECONFIG=%s", c.Kubeconfig())
	return nil
}

// create writes the state of a new cluster.
func create(ctx context.Context, p disk.Places, opts Options, binaries map[string]string, show *progress.Progress) (*Cluster, error) {
	dir := p.ClusterDir(opts.Name)
	// What an up that was killed before this point has left.
	if err := remove(ctx, dir, opts.Name, keepDirectory, show); err != nil {
		return nil, err
	}
	c := &Cluster{
		Name:         opts.Name,
		Profile:      opts.Profile,
		Created:      time.Now().UTC().Truncate(time.Second),
		Audit:        opts.Audit,
		OptionalAPIs: !opts.WithoutOptionalAPIs,
		Binaries:     binaries,
		dir:          dir,
	}
	if c.Profile == ProfileSimulated {
		c.Nodes = opts.Nodes
		if err := reservePorts(ctx, p, c); err != nil {
			return nil, err
		}
	} else {
		if err := c.createNamespaces(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	c.Complete = true
	return c, c.save()
}

// repair decides what to do about a cluster that is not healthy: start what is missing or begin again.
func repair(ctx context.Context, p disk.Places, c *Cluster, opts Options, binaries map[string]string, problems []string, show *progress.Progress) (*Cluster, error) {
	show.Say("Cluster %s is not healthy:", c.Name)
	for _, problem := range problems {
		show.Say("  - %s", problem)
	}
	if c.Profile == ProfileSimulated && c.hasBinaries() {
		return c, nil
	}
	if c.hasNode() && c.hasBinaries() {
		intact, err := c.namespacesIntact()
		if err != nil || intact {
			return c, err
		}
	}
	show.Say("It cannot be repaired in place and is made again")
	if err := remove(ctx, c.dir, c.Name, keepDirectory, show); err != nil {
		return nil, err
	}
	return create(ctx, p, opts, binaries, show)
}

func (c *Cluster) hasBinaries() bool {
	for _, part := range PartsOf(c.Profile) {
		if !disk.Exists(c.Binaries[part.Name]) {
			return false
		}
	}
	return true
}

// reservePorts gives the cluster ports that no other cluster of this user has, running or not.
// The ports are known to others once cluster.json is written, hence the lock until then.
func reservePorts(ctx context.Context, p disk.Places, c *Cluster) error {
	lock, err := disk.AwaitLock(ctx, p.Clusters, func(string) {})
	if err != nil {
		return err
	}
	defer lock.Release()

	all, err := p.Names()
	if err != nil {
		return err
	}
	taken := map[int]bool{}
	for _, name := range all {
		if other, err := Open(p, name); err == nil {
			taken[other.BasePort] = true
		}
	}
	if c.BasePort, err = pickPorts(taken, portFree); err != nil {
		return err
	}
	return c.save()
}

// definitions reads those of the Cilium and Gateway APIs.
func (c *Cluster) definitions() ([]client.Definition, error) {
	return client.ReadDefinitions(c.binary(build.OptionalAPIs.Name, "*/*.yaml"))
}

func (c *Cluster) missingDefinitions(ctx context.Context, api *client.Client) ([]string, error) {
	wanted, err := c.definitions()
	if err != nil {
		return nil, err
	}
	there, err := api.Definitions(ctx)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, d := range wanted {
		if !there[d.Name] {
			missing = append(missing, d.Name)
		}
	}
	return missing, nil
}

// installAPIs applies the definitions of the Cilium and Gateway APIs and waits until they are served.
func (c *Cluster) installAPIs(ctx context.Context, api *client.Client, show *progress.Progress) error {
	if !c.OptionalAPIs {
		return nil
	}
	wanted, err := c.definitions()
	if err != nil {
		return err
	}
	return show.Step("Cilium and Gateway APIs", func(func(string)) error {
		return c.define(ctx, api, wanted)
	})
}

// define applies definitions and waits until they are served.
func (c *Cluster) define(ctx context.Context, api *client.Client, wanted []client.Definition) error {
	var (
		names = make([]string, len(wanted))
		errs  = make([]error, len(wanted))
		group sync.WaitGroup
	)
	for i, d := range wanted {
		names[i] = d.Name
		group.Go(func() { errs[i] = api.ApplyDefinition(ctx, d) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.until(ctx, "kube-apiserver", func(ctx context.Context) error { return api.DefinitionsEstablished(ctx, names) })
}
