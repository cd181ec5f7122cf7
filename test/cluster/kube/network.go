package kube

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

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/client"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/host"
	"github.com/bergctf/berg-operator/test/cluster/pki"
	"github.com/bergctf/berg-operator/test/cluster/progress"
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

// networkProfile has Cilium as the network plugin, a Gateway, and a network outside.
func networkProfile() profile {
	return profile{
		name:  ProfileNetwork,
		parts: []*build.Part{build.Outside, build.Cilium, build.Traefik},
		// What Cilium calls: it compiles its programs for the kernel when it starts.
		packages:   host.Packages{"clang-19": {"clang-19"}, "ipset": {"ipset"}},
		components: []string{outsideName, "cilium-agent", "traefik"},
		identities: func(*Cluster) []pki.Identity {
			return []pki.Identity{
				// Programs of the node itself, like kubelet and kube-proxy, but they have no roles.
				{Name: "cilium", Authority: clusterAuthority, User: "cilium", Group: groupMasters},
				{Name: "traefik", Authority: clusterAuthority, User: "traefik", Group: groupMasters},
				{Name: "gateway", Authority: clusterAuthority, User: "gateway", Hosts: []string{"*." + gatewayDomain}},
			}
		},
		users:             []string{"cilium", "traefik"},
		needsOptionalAPIs: true,
		ownPlugin:         true,
		prepare: func(ctx context.Context, c *Cluster, show *progress.Progress) error {
			if err := c.writeNetworkFiles(); err != nil {
				return err
			}
			return c.bringOutside(ctx, show)
		},
		install: bringNetwork,
		checks: []func(context.Context, *Cluster, *client.Client) error{
			func(ctx context.Context, c *Cluster, _ *client.Client) error {
				if !c.linked(ctx, outsideName) {
					return errors.New("the network outside is not connected")
				}
				return nil
			},
			networkReady,
		},
		ready: "Gateway ready", suspect: "traefik",
	}
}

// outside is a process in a network namespace that ends with it. Nothing has to be removed afterwards.
func (c *Cluster) outside() component {
	return component{
		name:       outsideName,
		path:       c.binary(build.Outside.Name, "outside"),
		args:       []string{"--self", outsideIP, "--cluster", c.nodeIP(), "--domain", gatewayDomain + "."},
		cloneflags: syscall.CLONE_NEWNET,
	}
}

// bringOutside starts what lies beyond the cluster and lays the cable to it: the node's default route.
func (c *Cluster) bringOutside(ctx context.Context, show *progress.Progress) error {
	return c.bringBeside(ctx, show, "a network outside", c.outside(), func(ns, there string) []string {
		return []string{
			fmt.Sprintf("%s address add %s/32 dev lo", there, metadataIP),
			fmt.Sprintf("%s address add %s/32 dev lo", there, privateIP),
			fmt.Sprintf("ip -n %s route replace default via %s", ns, outsideIP),
		}
	})
}

// bringBeside starts a program in a network namespace of its own, where it has the address outsideIP, and lays a cable
// to it from the node, which is outsideGateway there. Both ends are called as the program is, and "node". more are
// commands that follow, given the name of the node's namespace, and how "ip" is called in the other one.
func (c *Cluster) bringBeside(ctx context.Context, show *progress.Progress, what string, p component, more func(ns, there string) []string) error {
	return show.Step(what, func(func(string)) error {
		running, err := c.Running()
		if err != nil {
			return err
		}
		if running[p.name] != 0 && c.linked(ctx, p.name) {
			return nil
		}
		if running[p.name] == 0 {
			if err := c.start(p); err != nil {
				return err
			}
		}
		var pid int
		err = c.until(ctx, p.name, func(context.Context) error {
			running, err := c.Running()
			if err != nil {
				return err
			}
			if pid = running[p.name]; pid == 0 {
				return errors.New("it has not started")
			}
			return nil
		})
		if err != nil {
			return err
		}
		ns, there := c.id(), fmt.Sprintf("nsenter --net=/proc/%d/ns/net ip", pid)
		commands := []string{
			fmt.Sprintf("ip -n %s link add %s type veth peer name node netns %d", ns, p.name, pid),
			fmt.Sprintf("ip -n %s address add %s/24 dev %s", ns, outsideGateway, p.name),
			fmt.Sprintf("ip -n %s link set %s up", ns, p.name),
			there + " link set lo up",
			fmt.Sprintf("%s address add %s/24 dev node", there, outsideIP),
			there + " link set node up",
		}
		for _, command := range append(commands, more(ns, there)...) {
			if err := host.Run(ctx, command); err != nil {
				return err
			}
		}
		return nil
	})
}

// linked tells whether the cable to a program is there; it goes with the namespace of its other end.
func (c *Cluster) linked(ctx context.Context, name string) bool {
	return host.Run(ctx, fmt.Sprintf("ip -n %s link show %s", c.id(), name)) == nil
}

// writeNetworkFiles renders what Cilium and the container runtime read.
func (c *Cluster) writeNetworkFiles() error {
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
		if err := disk.WriteFile(c.path("cilium", "config", key), []byte(value), 0o600); err != nil {
			return err
		}
	}
	// The agent writes next to its sources what it has detected about the kernel.
	if !disk.Exists(c.path("cilium", "lib", "bpf")) {
		if err := disk.CopyTree(c.path("cilium", "lib", "bpf"), c.binary(build.Cilium.Name, "bpf")); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{
		c.path("cilium", "bin", "clang"):        host.Find("clang-19"),
		c.path("node", "plugins", "cilium-cni"): c.binary(build.Cilium.Name, "cilium-cni"),
		c.path("node", "plugins", "loopback"):   filepath.Join(pluginDir, "loopback"),
	} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// renderNetwork fills in one of the files in network/.
func (c *Cluster) renderNetwork(file string, more map[string]any) ([]byte, error) {
	text, err := fs.ReadFile(networkFiles, "network/"+file)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New(file).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	all, err := host.Mounts()
	if err != nil {
		return nil, err
	}
	unified := ""
	if i := slices.IndexFunc(all, func(m host.Mount) bool { return m.Kind == "cgroup2" }); i >= 0 {
		unified = all[i].Point
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
func bringNetwork(ctx context.Context, c *Cluster, api *client.Client, show *progress.Progress) error {
	if err := c.installCilium(ctx, api, show); err != nil {
		return err
	}
	if err := c.bring(ctx, show, "Cilium, Traefik", c.ciliumAgent(), c.traefik()); err != nil {
		return err
	}
	return c.installGateway(ctx, show)
}

// installCilium applies Cilium's own definitions, without which its agent does not start.
func (c *Cluster) installCilium(ctx context.Context, api *client.Client, show *progress.Progress) error {
	return show.Step("Cilium's own APIs", func(func(string)) error {
		definitions, err := client.ReadDefinitions(c.binary(build.Cilium.Name, "crds/*.yaml"))
		if err != nil {
			return err
		}
		return c.define(ctx, api, definitions)
	})
}

func (c *Cluster) ciliumAgent() component {
	return component{
		name: "cilium-agent",
		path: c.binary(build.Cilium.Name, "cilium-agent"),
		args: []string{"--config-dir=" + c.path("cilium", "config")},
		env: []string{
			"K8S_NODE_NAME=" + nodeName,
			// On another file system than the plugin's configuration: it is then written in the same directory, and
			// renamed. Moved there from elsewhere, containerd would not see it.
			"TMPDIR=/run",
			"PATH=" + c.path("cilium", "bin") + string(filepath.ListSeparator) + host.Path,
		},
		hint: "Cilium wants a kernel with BPF, and clang-19 and ipset of the distribution",
	}
}

func (c *Cluster) traefik() component {
	return component{
		name: "traefik",
		path: c.binary(build.Traefik.Name, "traefik"),
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
func (c *Cluster) installGateway(ctx context.Context, show *progress.Progress) error {
	return show.Step("Gateway applied", func(func(string)) error {
		certificate, err := os.ReadFile(c.certificate("gateway"))
		if err != nil {
			return err
		}
		key, err := os.ReadFile(c.key("gateway"))
		if err != nil {
			return err
		}
		repository, err := disk.FindRepository()
		if err != nil {
			return err
		}
		sample, err := os.ReadFile(filepath.Join(repository, "config", "berg", "samples", "prerequisites", "gateway.yaml"))
		if err != nil {
			return err
		}
		manifest, err := c.renderNetwork("gateway.yaml", map[string]any{
			"Sample":      strings.TrimSpace(strings.Replace(string(sample), "gatewayClassName: berg-gate", "gatewayClassName: traefik", 1)),
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
func networkReady(ctx context.Context, _ *Cluster, api *client.Client) error {
	var gateway struct {
		Status struct {
			Listeners []struct {
				Name       string             `json:"name"`
				Conditions []client.Condition `json:"conditions"`
			} `json:"listeners"`
		} `json:"status"`
	}
	if err := api.Get(ctx, "/apis/gateway.networking.k8s.io/v1/namespaces/"+gatewayNamespace+"/gateways/berg-gateway", &gateway); err != nil {
		return err
	}
	if n := len(gateway.Status.Listeners); n != 3 {
		return fmt.Errorf("the Gateway serves %d of 3 listeners", n)
	}
	for _, listener := range gateway.Status.Listeners {
		if !client.Holds(listener.Conditions, "Programmed") {
			return fmt.Errorf("listener %s of the Gateway is not served", listener.Name)
		}
	}
	return nil
}
