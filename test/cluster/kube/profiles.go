package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/client"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/host"
	"github.com/bergctf/berg-operator/test/cluster/pki"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

// Names of the profiles.
const (
	ProfileSimulated = "simulated"
	ProfileNode      = "node"
	ProfileOLM       = "olm"
	ProfileNetwork   = "network"
	ProfileTekton    = "tekton"
)

// profile is what a kind of cluster is made of, besides the control plane, which all have.
type profile struct {
	name string
	// parts are built for it, beyond those that every cluster needs.
	parts []*build.Part
	// packages hold the programs of the distribution that it calls.
	packages host.Packages
	// components run in it: their names, as status lists them.
	components []string
	// identities get a certificate, and users of them a kubeconfig; nil for none.
	identities func(*Cluster) []pki.Identity
	users      []string
	// images are parts whose archives are pushed into the node's registry.
	images []*build.Part
	// needsOptionalAPIs tells that it is made of the Cilium and Gateway APIs.
	needsOptionalAPIs bool
	// ownPlugin tells that it brings its own network plugin, in the folder node/plugins of the cluster, and a resolver
	// for the names that are not the cluster's.
	ownPlugin bool
	// up starts what is missing and waits until all of it is ready.
	up func(context.Context, *Cluster, *progress.Progress) error

	// What follows is for those that extend the node; all of it may be nil. A cluster that is repaired goes through it
	// again.

	// prepare comes before the first component is started.
	prepare func(context.Context, *Cluster, *progress.Progress) error
	// install comes when the API server serves the optional APIs.
	install func(context.Context, *Cluster, *client.Client, *progress.Progress) error
	// checks are polled at the end of up, and by status. Each names one problem.
	checks []func(context.Context, *Cluster, *client.Client) error
	// ready is what up says of the checks, and suspect the component whose log may tell why they fail.
	ready, suspect string
}

// profiles are all there are.
func profiles() []profile {
	return []profile{
		simulatedProfile(),
		nodeProfile(),
		nodeProfile().with(olmProfile()),
		nodeProfile().with(networkProfile()),
		nodeProfile().with(tektonProfile()),
	}
}

// with returns what a profile and one that extends it make together.
func (p profile) with(more profile) profile {
	all := more
	all.parts = slices.Concat(p.parts, more.parts)
	all.packages = with(p.packages, more.packages)
	all.components = slices.Concat(p.components, more.components)
	all.identities = func(c *Cluster) []pki.Identity {
		ids := p.identities(c)
		if more.identities != nil {
			ids = append(ids, more.identities(c)...)
		}
		return ids
	}
	all.users = slices.Concat(p.users, more.users)
	all.images = slices.Concat(p.images, more.images)
	all.up = p.up
	return all
}

// with returns the packages of both.
func with(some, more host.Packages) host.Packages {
	all := maps.Clone(some)
	maps.Copy(all, more)
	return all
}

// findProfile returns the profile of a name, and whether there is one.
func findProfile(name string) (profile, bool) {
	for _, p := range profiles() {
		if p.name == name {
			return p, true
		}
	}
	return profile{}, false
}

// profile is that of the cluster. One that an older version of the runner has written down may be nothing that exists.
func (c *Cluster) profile() profile {
	p, _ := findProfile(c.Profile)
	return p
}

// Profiles returns the names of all profiles.
func Profiles() []string {
	var names []string
	for _, p := range profiles() {
		names = append(names, p.name)
	}
	return names
}

// NeedsOptionalAPIs tells whether a profile cannot do without the Cilium and Gateway APIs.
func NeedsOptionalAPIs(name string) bool {
	p, _ := findProfile(name)
	return p.needsOptionalAPIs
}

// MissingPackages returns the packages of the distribution that a profile needs and this machine lacks.
func MissingPackages(name string) []string {
	p, _ := findProfile(name)
	return p.packages.Missing()
}

// PartsOf lists what a profile needs, or everything when none is named.
func PartsOf(name string) []*build.Part {
	var parts []*build.Part
	for _, p := range profiles() {
		if name != "" && name != p.name {
			continue
		}
		for _, part := range slices.Concat([]*build.Part{build.ControlPlane}, p.parts, []*build.Part{build.OptionalAPIs}) {
			if !slices.Contains(parts, part) {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// CheckBuilds returns an error that names a part which a profile needs, or any profile when none is named, and which is not built.
func CheckBuilds(ctx context.Context, p disk.Places, profile string) error {
	for _, part := range PartsOf(profile) {
		if dir, err := build.Dir(ctx, p, part); err != nil {
			return err
		} else if !disk.Exists(dir) {
			return fmt.Errorf("%s is not built", part.Name)
		}
	}
	return nil
}

// Build fills the cache for a profile, or for all when none is named, and returns the directory of each part by name.
func Build(ctx context.Context, p disk.Places, profile string, show *progress.Progress) (map[string]string, error) {
	dirs := map[string]string{}
	for _, part := range PartsOf(profile) {
		dir, err := build.One(ctx, p, part, show)
		if err != nil {
			return nil, err
		}
		dirs[part.Name] = dir
	}
	return dirs, nil
}
