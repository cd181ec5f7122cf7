package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/template"
)

// What is particular to profile network: Cilium as the network plugin, Traefik as the Gateway API's data plane, and
// a network beyond the cluster for pods to reach, or not.
const (
	// outsideName is the component that is everything beyond the cluster, in a network namespace of its own.
	outsideName = "outside"
	// outsideIP is an address for documentation (RFC 5737), which stands for the internet.
	outsideIP = "203.0.113.10"
	// outsideGateway is the node's address there.
	outsideGateway = "203.0.113.1"
	metadataIP     = "169.254.169.254"
	// privateIP stands for a network of the provider or the organizer, next to the cluster.
	privateIP = "192.168.77.10"

	// The Gateway of the samples, and one more listener.
	gatewayNamespace = "berg"
	gatewayDomain    = "challenges.example.com"
	portHTTP         = 443
	portTLS          = 8443
	portPassthrough  = 1337
)

//go:embed network/*
var networkFiles embed.FS

// networkDistribution is what Cilium calls: it compiles its programs for the kernel when it starts.
var networkDistribution = []distributed{
	{"clang-19", "clang-19"},
	{"ipset", "ipset"},
}

var (
	cilium = &part{
		name:    "cilium",
		sources: []string{"cilium"},
		recipe:  "agent, plugin, programs for the kernel, definitions",
		build:   (*builder).cilium,
	}
	traefik = &part{
		name:    "traefik",
		sources: []string{"traefik"},
		recipe:  "without what no cluster asks for",
		build:   (*builder).traefik,
	}
	outside = &part{
		name:    outsideName,
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
	if err := copyTree(filepath.Join(out, "bpf"), filepath.Join(source, "bpf"), "tests", "complexity-tests"); err != nil {
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
			if err := copyFile(filepath.Join(out, "crds", filepath.Base(file)), file); err != nil {
				return err
			}
		}
	}
	return nil
}

// traefikWithout are packages that call services of clouds, and are three quarters of what there is to compile.
// Those in components/traefik/without take their places.
var traefikWithout = []struct{ module, folder, by string }{
	{"github.com/go-acme/lego/v4", "providers/dns", "dns"},
	{"github.com/traefik/traefik/v3", "pkg/provider/ecs", "ecs"},
}

func (b *builder) traefik(out string) error {
	work, err := os.MkdirTemp("", "berg-traefik-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	own := b.module("traefik")
	versions, err := os.ReadFile(filepath.Join(own, "go.mod"))
	if err != nil {
		return err
	}
	for _, cut := range traefikWithout {
		b.detail("downloading " + cut.module)
		if _, err := goOutput(b.ctx, own, "mod", "download", cut.module); err != nil {
			return err
		}
		source, err := goOutput(b.ctx, own, "list", "-m", "-f", "{{.Dir}}", cut.module)
		if err != nil {
			return err
		}
		module := filepath.Join(work, cut.by)
		if err := copyTree(module, source, "docs", "integration"); err != nil {
			return err
		}
		folder := filepath.Join(module, cut.folder)
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
		if err := copyTree(folder, filepath.Join(own, "without", cut.by)); err != nil {
			return err
		}
		versions = fmt.Appendf(versions, "replace %s => %s\n", cut.module, module)
	}
	if err := os.WriteFile(filepath.Join(work, "go.mod"), versions, 0o600); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(work, "go.sum"), filepath.Join(own, "go.sum")); err != nil {
		return err
	}
	return b.compile("traefik", out, linkerFlags, "-modfile="+filepath.Join(work, "go.mod"), "tool")
}

// copyTree copies the files of a directory, writable, without those of the named directories at its top.
func copyTree(dst, src string, without ...string) error {
	return filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(src, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(without, name):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		return copyFile(filepath.Join(dst, name), path)
	})
}

// outside is a process in a network namespace that ends with it. Nothing has to be removed afterwards.
func (c *cluster) outside() component {
	return component{
		name:       outsideName,
		path:       c.binary(outside.name, "outside"),
		args:       []string{"--self", outsideIP, "--cluster", c.nodeIP(), "--domain", gatewayDomain + "."},
		cloneflags: syscall.CLONE_NEWNET,
	}
}

// bringOutside starts what lies beyond the cluster and lays the cable to it: the node's default route.
func (c *cluster) bringOutside(ctx context.Context, progress *progress) error {
	return progress.step("a network outside", func(func(string)) error {
		running, err := c.running()
		if err != nil {
			return err
		}
		if running[outsideName] != 0 && c.linkedOutside(ctx) {
			return nil
		}
		if running[outsideName] == 0 {
			if err := c.start(c.outside()); err != nil {
				return err
			}
		}
		var pid int
		err = c.until(ctx, outsideName, func(context.Context) error {
			running, err := c.running()
			if err != nil {
				return err
			}
			if pid = running[outsideName]; pid == 0 {
				return errors.New("it has not started")
			}
			return nil
		})
		if err != nil {
			return err
		}
		ns, there := c.id(), fmt.Sprintf("nsenter --net=/proc/%d/ns/net ip", pid)
		for _, command := range []string{
			fmt.Sprintf("ip -n %s link add %s type veth peer name node netns %d", ns, outsideName, pid),
			fmt.Sprintf("ip -n %s address add %s/24 dev %s", ns, outsideGateway, outsideName),
			fmt.Sprintf("ip -n %s link set %s up", ns, outsideName),
			there + " link set lo up",
			fmt.Sprintf("%s address add %s/32 dev lo", there, metadataIP),
			fmt.Sprintf("%s address add %s/32 dev lo", there, privateIP),
			fmt.Sprintf("%s address add %s/24 dev node", there, outsideIP),
			there + " link set node up",
			fmt.Sprintf("ip -n %s route replace default via %s", ns, outsideIP),
		} {
			if err := execute(ctx, command); err != nil {
				return err
			}
		}
		return nil
	})
}

// linkedOutside tells whether the cable is there; it goes with the namespace of its other end.
func (c *cluster) linkedOutside(ctx context.Context) bool {
	return execute(ctx, fmt.Sprintf("ip -n %s link show %s", c.id(), outsideName)) == nil
}

// writeNetworkFiles renders what Cilium and the container runtime read.
func (c *cluster) writeNetworkFiles() error {
	settings, err := c.renderNetwork("cilium.conf", nil)
	if err != nil {
		return err
	}
	for _, dir := range []string{c.path("cilium", "config"), c.path("cilium", "bin"), c.path("node", "plugins")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// One file for each setting.
	for line := range strings.Lines(string(settings)) {
		key, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found {
			continue
		}
		if err := writeFile(c.path("cilium", "config", key), []byte(value), 0o600); err != nil {
			return err
		}
	}
	// The agent writes beside its sources what it found out about the kernel.
	if !exists(c.path("cilium", "lib", "bpf")) {
		if err := copyTree(c.path("cilium", "lib", "bpf"), c.binary(cilium.name, "bpf")); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{
		c.path("cilium", "bin", "clang"):        findProgram("clang-19"),
		c.path("node", "plugins", "cilium-cni"): c.binary(cilium.name, "cilium-cni"),
		c.path("node", "plugins", "loopback"):   filepath.Join(pluginDir, "loopback"),
	} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// renderNetwork fills in one of the files in network/.
func (c *cluster) renderNetwork(file string, more map[string]any) ([]byte, error) {
	text, err := fs.ReadFile(networkFiles, "network/"+file)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New(file).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	all, err := mounts()
	if err != nil {
		return nil, err
	}
	unified := ""
	if i := slices.IndexFunc(all, func(m mount) bool { return m.kind == "cgroup2" }); i >= 0 {
		unified = all[i].point
	}
	values := map[string]any{
		"Kubeconfig":   c.path("kubeconfig", "cilium"),
		"Library":      c.path("cilium", "lib"),
		"Plugin":       c.path("node", "cni", "05-cilium.conflist"),
		"PluginLog":    c.path("logs", "cilium-cni.log"),
		"PodRange":     nodePodRange,
		"ControlGroup": unified,
		"Namespace":    gatewayNamespace,
		"Domain":       gatewayDomain,
		"Passthrough":  portPassthrough,
	}
	for key, value := range more {
		values[key] = value
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, values)
	return out.Bytes(), err
}

// bringNetwork starts Cilium and the Gateway's data plane.
func (c *cluster) bringNetwork(ctx context.Context, api *apiClient, progress *progress) error {
	if err := c.installCilium(ctx, api, progress); err != nil {
		return err
	}
	if err := c.bring(ctx, progress, "Cilium, Traefik", c.ciliumAgent(), c.traefik()); err != nil {
		return err
	}
	return c.installGateway(ctx, progress)
}

// installCilium applies Cilium's own definitions, without which its agent does not start.
func (c *cluster) installCilium(ctx context.Context, api *apiClient, progress *progress) error {
	return progress.step("Cilium's own APIs", func(func(string)) error {
		definitions, err := readDefinitions(c.binary(cilium.name, "crds/*.yaml"))
		if err != nil {
			return err
		}
		return c.define(ctx, api, definitions)
	})
}

func (c *cluster) ciliumAgent() component {
	return component{
		name: "cilium-agent",
		path: c.binary(cilium.name, "cilium-agent"),
		args: []string{"--config-dir=" + c.path("cilium", "config")},
		env: []string{
			"K8S_NODE_NAME=" + nodeName,
			// On another file system than the plugin's configuration: it is then written beside its place, and
			// renamed. Moved there from elsewhere, containerd would not see it.
			"TMPDIR=/run",
			"PATH=" + c.path("cilium", "bin") + string(filepath.ListSeparator) + systemPath,
		},
		hint: "Cilium wants a kernel with BPF, and clang-19 and ipset of the distribution",
	}
}

func (c *cluster) traefik() component {
	return component{
		name: "traefik",
		path: c.binary(traefik.name, "traefik"),
		args: []string{
			fmt.Sprintf("--entrypoints.http.address=%s:%d", c.nodeIP(), portHTTP),
			fmt.Sprintf("--entrypoints.tls.address=%s:%d", c.nodeIP(), portTLS),
			fmt.Sprintf("--entrypoints.passthrough.address=%s:%d", c.nodeIP(), portPassthrough),
			"--providers.kubernetesgateway=true",
			"--providers.kubernetesgateway.experimentalchannel=true",
			"--providers.kubernetesgateway.statusaddress.ip=" + c.nodeIP(),
			"--global.checknewversion=false",
			"--global.sendanonymoususage=false",
		},
		env:   []string{"KUBECONFIG=" + c.path("kubeconfig", "traefik")},
		ready: dial("tcp", net.JoinHostPort(c.nodeIP(), strconv.Itoa(portHTTP))),
	}
}

// installGateway applies the Gateway of the samples with a certificate for the hosts of instances.
func (c *cluster) installGateway(ctx context.Context, progress *progress) error {
	return progress.step("Gateway applied", func(func(string)) error {
		certificate, err := os.ReadFile(c.certificate("gateway"))
		if err != nil {
			return err
		}
		key, err := os.ReadFile(c.key("gateway"))
		if err != nil {
			return err
		}
		repository, err := findRepository()
		if err != nil {
			return err
		}
		sample, err := os.ReadFile(filepath.Join(repository, "config", "berg", "samples", "prerequisites", "gateway.yaml"))
		if err != nil {
			return err
		}
		manifest, err := c.renderNetwork("gateway.yaml", map[string]any{
			"Sample":      strings.TrimSpace(string(sample)),
			"Certificate": base64.StdEncoding.EncodeToString(certificate),
			"Key":         base64.StdEncoding.EncodeToString(key),
		})
		if err != nil {
			return err
		}
		return c.apply(ctx, string(manifest))
	})
}

// networkReady wants every listener of the Gateway to be served.
func (a *apiClient) networkReady(ctx context.Context) error {
	var gateway struct {
		Status struct {
			Listeners []struct {
				Name       string      `json:"name"`
				Conditions []condition `json:"conditions"`
			} `json:"listeners"`
		} `json:"status"`
	}
	if err := a.get(ctx, "/apis/gateway.networking.k8s.io/v1/namespaces/"+gatewayNamespace+"/gateways/berg-gateway", &gateway); err != nil {
		return err
	}
	if n := len(gateway.Status.Listeners); n != 3 {
		return fmt.Errorf("the Gateway serves %d of 3 listeners", n)
	}
	for _, listener := range gateway.Status.Listeners {
		if !holds(listener.Conditions, "Programmed") {
			return fmt.Errorf("listener %s of the Gateway is not served", listener.Name)
		}
	}
	return nil
}
