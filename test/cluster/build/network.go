package build

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/bergctf/berg-operator/test/cluster/disk"
)

// Parts of profile network. Outside is everything beyond the cluster.
var (
	Cilium = &Part{
		Name:    "cilium",
		sources: []string{"cilium"},
		recipe:  "agent, plugin, programs for the kernel, definitions",
		build:   (*builder).cilium,
	}
	Traefik = &Part{
		Name:    "traefik",
		sources: []string{"traefik"},
		recipe:  "without what no cluster asks for",
		build:   (*builder).traefik,
	}
	Outside = &Part{
		Name:    "outside",
		sources: []string{"outside"},
		build: func(b *builder, out string) error {
			return b.compile("outside", out, linkerFlags, ".")
		},
	}
)

// cilium builds the agent and the plugin, and collects what the agent reads at run time.
func (b *builder) cilium(out string) error {
	if err := b.compile("cilium", out, linkerFlags, "tool"); err != nil {
		return err
	}
	// A main package in a folder called daemon.
	if err := os.Rename(filepath.Join(out, "daemon"), filepath.Join(out, "cilium-agent")); err != nil {
		return err
	}
	source, err := goOutput(b.ctx, b.module("cilium"), "list", "-m", "-f", "{{.Dir}}", ciliumModule)
	if err != nil {
		return err
	}
	if err := disk.CopyTree(filepath.Join(out, "bpf"), filepath.Join(source, "bpf"), "tests", "complexity-tests"); err != nil {
		return err
	}
	for _, version := range []string{"v2", "v2alpha1"} {
		files, err := filepath.Glob(filepath.Join(source, "pkg/k8s/apis/cilium.io/client/crds", version, "*.yaml"))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("%s holds no definitions of version %s: have they moved?", ciliumModule, version)
		}
		for _, file := range files {
			if err := disk.CopyFile(filepath.Join(out, "crds", filepath.Base(file)), file); err != nil {
				return err
			}
		}
	}
	return nil
}

// cut is a package of a dependency that a stand-in below components/MODULE/without takes the place of.
type cut struct{ module, folder, by string }

// traefikWithout are packages that call services of clouds, and are three quarters of what there is to compile.
var traefikWithout = []cut{
	{"github.com/go-acme/lego/v4", "providers/dns", "dns"},
	{"github.com/traefik/traefik/v3", "pkg/provider/ecs", "ecs"},
}

func (b *builder) traefik(out string) error {
	return b.compileWithout("traefik", out, traefikWithout, "tool")
}

// compileWithout compiles packages of a component from copies of its dependencies in which stand-ins take the places
// of what nothing here asks for.
func (b *builder) compileWithout(component, out string, cuts []cut, packages ...string) error {
	work, err := os.MkdirTemp("", "berg-"+component+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	own := b.module(component)
	versions, err := os.ReadFile(filepath.Join(own, "go.mod"))
	if err != nil {
		return err
	}
	copies := map[string]string{}
	for _, cut := range cuts {
		module, copied := copies[cut.module]
		if !copied {
			b.detail("downloading " + cut.module)
			if _, err := goOutput(b.ctx, own, "mod", "download", cut.module); err != nil {
				return err
			}
			source, err := goOutput(b.ctx, own, "list", "-m", "-f", "{{.Dir}}", cut.module)
			if err != nil {
				return err
			}
			module = filepath.Join(work, cut.by)
			copies[cut.module] = module
			if err := disk.CopyTree(module, source, "docs", "integration"); err != nil {
				return err
			}
			versions = fmt.Appendf(versions, "replace %s => %s\n", cut.module, module)
		}
		folder := filepath.Join(module, cut.folder)
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
		if err := disk.CopyTree(folder, filepath.Join(own, "without", cut.by)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(work, "go.mod"), versions, 0o600); err != nil {
		return err
	}
	if err := disk.CopyFile(filepath.Join(work, "go.sum"), filepath.Join(own, "go.sum")); err != nil {
		return err
	}
	return b.compile(component, out, linkerFlags, append([]string{"-modfile=" + filepath.Join(work, "go.mod")}, packages...)...)
}
