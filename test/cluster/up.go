package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// up makes a cluster, or mends one that is there.
func up(ctx context.Context, p places, opts options, progress *progress) error {
	begin := time.Now()
	if opts.profile != profileSimulated {
		if err := nodePreconditions(ctx, opts.profile, progress); err != nil {
			return err
		}
	}
	binaries, err := buildProfile(ctx, p, opts.profile, progress)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.clusterDir(opts.name), 0o700); err != nil {
		return err
	}
	lock, holder, err := lockDirectory(p.clusterDir(opts.name))
	if errors.Is(err, errLocked) {
		return fmt.Errorf("process %d is working on cluster %s: wait for it, or end it", holder, opts.name)
	}
	if err != nil {
		return err
	}
	defer lock.release()

	ctx, cancel := context.WithTimeoutCause(ctx, opts.timeout, fmt.Errorf("not ready after %s: --timeout gives it longer", opts.timeout))
	defer cancel()

	c, err := p.loadCluster(opts.name)
	switch {
	case errors.Is(err, errNoCluster) || err == nil && !c.Complete:
		progress.say("Cluster %s, profile %s", opts.name, opts.profile)
		if c, err = create(ctx, p, opts, binaries, progress); err != nil {
			return err
		}
	case err != nil:
		return err
	case c.Profile != opts.profile:
		return fmt.Errorf("cluster %s exists with profile %s: take it down first, or choose another --name", c.Name, c.Profile)
	default:
		for name, dir := range binaries {
			if c.Binaries[name] != dir {
				progress.say("Cluster %s was made from other sources of %s: down and up renew it", c.Name, name)
			}
		}
		if opts.audit != c.Audit || opts.withoutOptionalAPIs == c.OptionalAPIs || c.Nodes > 0 && opts.nodes != c.Nodes {
			progress.say("Cluster %s was made with other options: down and up change them", c.Name)
		}
		if problems := c.problems(ctx); len(problems) == 0 {
			progress.say("Cluster %s is up and healthy (checked in %s)", c.Name, elapsed(begin))
			return nil
		} else if c, err = mend(ctx, p, c, opts, binaries, problems, progress); err != nil {
			return err
		}
	}

	if c.hasNode() {
		err = upNode(ctx, c, progress)
	} else {
		err = upSimulated(ctx, c, progress)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return fmt.Errorf("%w\nup again mends what is missing, down removes what is there", err)
	}
	progress.say("Cluster %s is ready after %s", c.Name, elapsed(begin))
	progress.say("  export KUBECONFIG=%s", c.kubeconfig())
	return nil
}

// create writes the state of a new cluster.
func create(ctx context.Context, p places, opts options, binaries map[string]string, progress *progress) (*cluster, error) {
	dir := p.clusterDir(opts.name)
	// Whatever an up that was killed before this point has left.
	if err := remove(ctx, dir, opts.name, keepDirectory, progress); err != nil {
		return nil, err
	}
	c := &cluster{
		Name:         opts.name,
		Profile:      opts.profile,
		Created:      time.Now().UTC().Truncate(time.Second),
		Audit:        opts.audit,
		OptionalAPIs: !opts.withoutOptionalAPIs,
		Binaries:     binaries,
		dir:          dir,
	}
	if c.Profile == profileSimulated {
		c.Nodes = opts.nodes
		if err := p.reservePorts(ctx, c); err != nil {
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

// mend decides what to do about a cluster that is not healthy: start what is missing or begin anew.
func mend(ctx context.Context, p places, c *cluster, opts options, binaries map[string]string, problems []string, progress *progress) (*cluster, error) {
	progress.say("Cluster %s is not healthy:", c.Name)
	for _, problem := range problems {
		progress.say("  - %s", problem)
	}
	if c.Profile == profileSimulated && c.hasBinaries() {
		return c, nil
	}
	if c.hasNode() && c.hasBinaries() {
		intact, err := c.namespacesIntact()
		if err != nil || intact {
			return c, err
		}
	}
	progress.say("It cannot be mended in place and is made anew")
	if err := remove(ctx, c.dir, c.Name, keepDirectory, progress); err != nil {
		return nil, err
	}
	return create(ctx, p, opts, binaries, progress)
}

func (c *cluster) hasBinaries() bool {
	for _, part := range partsOf(c.Profile) {
		if !exists(c.Binaries[part.name]) {
			return false
		}
	}
	return true
}

// reservePorts gives the cluster ports that no other cluster of this user has, running or not.
// The ports are known to others once cluster.json is written, hence the lock until then.
func (p places) reservePorts(ctx context.Context, c *cluster) error {
	lock, err := awaitLock(ctx, p.clusters, func(string) {})
	if err != nil {
		return err
	}
	defer lock.release()

	names, err := p.names()
	if err != nil {
		return err
	}
	taken := map[int]bool{}
	for _, name := range names {
		if other, err := p.loadCluster(name); err == nil {
			taken[other.BasePort] = true
		}
	}
	if c.BasePort, err = pickPorts(taken, portFree); err != nil {
		return err
	}
	return c.save()
}

// definitions reads those of the Cilium and Gateway APIs.
func (c *cluster) definitions() ([]definition, error) {
	return readDefinitions(c.binary(optionalAPIs.name, "*/*.yaml"))
}

func readDefinitions(pattern string) ([]definition, error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	all := make([]definition, len(files))
	for i, file := range files {
		if all[i], err = readDefinition(file); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (c *cluster) missingDefinitions(ctx context.Context, api *apiClient) ([]string, error) {
	wanted, err := c.definitions()
	if err != nil {
		return nil, err
	}
	there, err := api.definitions(ctx)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, d := range wanted {
		if !there[d.name] {
			missing = append(missing, d.name)
		}
	}
	return missing, nil
}

// installAPIs applies the definitions of the Cilium and Gateway APIs and waits until they are served.
func (c *cluster) installAPIs(ctx context.Context, api *apiClient, progress *progress) error {
	if !c.OptionalAPIs {
		return nil
	}
	wanted, err := c.definitions()
	if err != nil {
		return err
	}
	return progress.step("Cilium and Gateway APIs", func(func(string)) error {
		return c.define(ctx, api, wanted)
	})
}

// define applies definitions and waits until they are served.
func (c *cluster) define(ctx context.Context, api *apiClient, wanted []definition) error {
	var (
		names = make([]string, len(wanted))
		errs  = make([]error, len(wanted))
		group sync.WaitGroup
	)
	for i, d := range wanted {
		names[i] = d.name
		group.Go(func() { errs[i] = api.applyDefinition(ctx, d) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.until(ctx, "kube-apiserver", func(ctx context.Context) error { return api.definitionsEstablished(ctx, names) })
}
