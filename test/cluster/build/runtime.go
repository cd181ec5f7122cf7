package build

import (
	"fmt"
	"strings"

	"github.com/bergctf/berg-operator/test/cluster/host"
)

const (
	// containerdTags leave out snapshotters that no node here uses.
	containerdTags = "-tags=no_btrfs,no_devmapper,no_zfs"
	// runcTags let it filter system calls, by a C library: a runc without it starts no pod.
	runcTags = "-tags=seccomp"
)

// What runs containers. Those of many distributions know no user namespaces.
var (
	Containerd = &Part{
		Name:    "containerd",
		sources: []string{"containerd"},
		recipe:  containerdTags,
		build: func(b *builder, out string) error {
			return b.compile("containerd", out, linkerFlags, containerdTags, "tool")
		},
	}
	Runc = &Part{
		Name:    "runc",
		sources: []string{"runc"},
		recipe:  runcTags,
		build:   (*builder).runc,
	}
)

// RuncPackages are those of Debian by which runc is built, and the library that it runs with. A part of runc is C.
var RuncPackages = host.Packages{
	"gcc":            {"gcc"},
	"libc6-dev":      {"/usr/include/stdlib.h"},
	"libseccomp-dev": {"/usr/include/seccomp.h"},
	"pkg-config":     {"pkg-config"},
}

func (b *builder) runc(out string) error {
	if missing := RuncPackages.Missing(); len(missing) > 0 {
		return fmt.Errorf("missing: %s: run hack/packages node, or install the packages of your distribution that hold these", strings.Join(missing, ", "))
	}
	cmd := goCommand(b.ctx, b.module("runc"), append(buildArguments(out, linkerFlags), runcTags, "tool")...)
	cmd.Env = append(cmd.Env, "CGO_ENABLED=1", "CC=gcc")
	return b.run("runc", cmd)
}
