package kube

import (
	"archive/tar"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/client"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/host"
	"github.com/bergctf/berg-operator/test/cluster/pki"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

const (
	nodeName = "node"
	// nodePodRange is that of the cluster, podRange the part of it that the first and only node is given.
	nodePodRange = "10.244.0.0/16"
	nodePodMask  = "22"
	podRange     = "10.244.0.0/22"
	maxPods      = 500

	registryPort     = "5000"
	proxyHealth      = 10256
	containerdSocket = "/run/containerd/containerd.sock"
	pluginDir        = "/usr/lib/cni"
)

//go:embed node/*
var nodeFiles embed.FS

func nodeProfile() profile {
	return profile{
		name:  ProfileNode,
		parts: []*build.Part{build.NodeAgents, build.Containerd, build.Runc, build.ImageTool, build.CoreDNS, build.SystemImages},
		packages: with(build.RuncPackages, host.Packages{
			"iptables":   {"iptables"},
			"conntrack":  {"conntrack"},
			"iproute2":   {"ip", "tc"},
			"util-linux": {"nsenter"},
			"containernetworking-plugins": {
				pluginDir + "/ptp", pluginDir + "/host-local", pluginDir + "/portmap", pluginDir + "/bandwidth", pluginDir + "/loopback",
			},
		}),
		components: []string{namespaceHolder, "registry", "containerd", "kubelet", "kube-proxy"},
		identities: func(c *Cluster) []pki.Identity {
			return []pki.Identity{
				{
					Name: "kubelet", Authority: clusterAuthority, User: "system:node:" + nodeName, Group: groupNodes,
					Hosts: []string{nodeName, c.nodeIP()},
				},
				{Name: "kube-proxy", Authority: clusterAuthority, User: "system:kube-proxy"},
				{Name: "registry", Authority: clusterAuthority, User: "registry", Hosts: []string{c.nodeIP()}},
			}
		},
		users:  []string{"kubelet", "kube-proxy"},
		images: []*build.Part{build.SystemImages},
		up:     upNode,
	}
}

// nodePreconditions wants root and what the distribution has to provide, and installs that on Debian.
func nodePreconditions(ctx context.Context, profile string, show *progress.Progress) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("profile %s needs root: run it with sudo, or use --profile simulated", profile)
	}
	missing := MissingPackages(profile)
	if len(missing) == 0 {
		return nil
	}
	const remedy = "install the packages of your distribution that hold these, or their like"
	if host.Find("apt-get") == "" {
		return fmt.Errorf("missing: %s: %s", strings.Join(missing, ", "), remedy)
	}
	err := show.Step("installing "+strings.Join(missing, " "), func(func(string)) error {
		install := "apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=120 " + strings.Join(missing, " ")
		// The lists are often there, and old: only when that does not do they are fetched.
		if err := host.Run(ctx, install, "DEBIAN_FRONTEND=noninteractive"); err == nil {
			return nil
		}
		if err := host.Run(ctx, "apt-get update"); err != nil {
			return err
		}
		return host.Run(ctx, install, "DEBIAN_FRONTEND=noninteractive")
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, remedy)
	}
	if missing = MissingPackages(profile); len(missing) > 0 {
		return fmt.Errorf("still missing after apt-get install: %s: %s", strings.Join(missing, ", "), remedy)
	}
	return nil
}

func (c *Cluster) registry() string { return net.JoinHostPort(c.nodeIP(), registryPort) }

// upNode starts what is missing and waits until all of it is ready.
func upNode(ctx context.Context, c *Cluster, show *progress.Progress) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	if err := c.writeNodeFiles(); err != nil {
		return err
	}
	profile := c.profile()
	if profile.prepare != nil {
		if err := profile.prepare(ctx, c, show); err != nil {
			return err
		}
	}
	if !c.Bandwidth {
		show.Say("  This kernel lacks ifb, tbf or mirred: bandwidth limits of pods are not enforced")
	}
	// All that does not wait for the API server.
	err = c.bring(ctx, show, "etcd, API server, registry, containerd",
		c.etcd(), c.apiserver(api), c.registryServer(), c.containerd())
	if err != nil {
		return err
	}
	err = c.bring(ctx, show, "controllers, scheduler, kubelet, kube-proxy",
		c.controllerManager(), c.scheduler(), c.kubelet(api), c.kubeProxy())
	if err != nil {
		return err
	}
	err = show.Step("system images", func(detail func(string)) error {
		var images []string
		for _, part := range profile.images {
			archives, err := filepath.Glob(c.binary(part.Name, "*.tar"))
			if err != nil {
				return err
			}
			images = append(images, archives...)
		}
		return c.push(ctx, images)
	})
	if err != nil {
		return err
	}
	err = show.Step("DNS applied", func(detail func(string)) error {
		manifest, err := c.render("coredns.yaml")
		if err != nil {
			return err
		}
		return c.apply(ctx, string(manifest))
	})
	if err != nil {
		return err
	}
	if err := c.installAPIs(ctx, api, show); err != nil {
		return err
	}
	if profile.install != nil {
		if err := profile.install(ctx, c, api, show); err != nil {
			return err
		}
	}
	err = show.Step("node and DNS ready", func(detail func(string)) error {
		detail("waiting for the node")
		if err := c.until(ctx, "kubelet", func(ctx context.Context) error { return api.NodesReady(ctx, 1) }); err != nil {
			return err
		}
		detail("waiting for the DNS server")
		return c.until(ctx, "kubelet", func(ctx context.Context) error { return api.DeploymentReady(ctx, "kube-system", "coredns") })
	})
	if err != nil {
		return err
	}
	if len(profile.checks) == 0 {
		return nil
	}
	return show.Step(profile.ready, func(func(string)) error {
		for _, check := range profile.checks {
			err := c.until(ctx, profile.suspect, func(ctx context.Context) error { return check(ctx, c, api) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Cluster) registryServer() component {
	return component{
		name: "registry",
		path: c.binary(build.ImageTool.Name, "image"),
		args: []string{
			"serve", "--listen", c.registry(), "--cert", c.certificate("registry"), "--key", c.key("registry"),
			"--dir", c.path("registry"),
		},
		ready: dial("tcp", c.registry()),
	}
}

// dial waits for a listener.
func dial(network, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func (c *Cluster) containerd() component {
	return component{
		name: "containerd",
		path: c.binary(build.Containerd.Name, "containerd"),
		args: []string{"--config", c.path("node", "containerd.toml")},
		// It looks up the shim in its PATH, and the shim runc. The machine may have others.
		env: []string{"PATH=" + strings.Join([]string{c.binary(build.Containerd.Name, ""), c.binary(build.Runc.Name, ""), host.Path}, ":")},
		// A kubelet that finds no runtime at its start ends.
		ready: func(ctx context.Context) error {
			running, err := c.Running()
			if err != nil {
				return err
			}
			// The socket lies in the node's mount namespace.
			return dial("unix", fmt.Sprintf("/proc/%d/root%s", running[namespaceHolder], containerdSocket))(ctx)
		},
	}
}

func (c *Cluster) kubelet(api *client.Client) component {
	// Of the other plugins, Cilium, only its bandwidth manager limits traffic, which this node is not made for.
	limits := c.Bandwidth && !c.profile().ownPlugin
	return component{
		name: "kubelet",
		path: c.binary(build.NodeAgents.Name, "kubelet"),
		args: []string{
			"--config=" + c.path("node", "kubelet.yaml"),
			"--kubeconfig=" + c.path("kubeconfig", "kubelet"),
			"--hostname-override=" + nodeName,
			"--node-ip=" + c.nodeIP(),
			// Tests ask for it.
			fmt.Sprintf("--node-labels=berg.test/bandwidth=%t", limits),
		},
		// What the API server knows of the node may be from before a restart; this asks the kubelet itself.
		ready: func(ctx context.Context) error {
			return api.Get(ctx, "/api/v1/nodes/"+nodeName+"/proxy/healthz", nil)
		},
	}
}

func (c *Cluster) kubeProxy() component {
	return component{
		name: "kube-proxy",
		path: c.binary(build.NodeAgents.Name, "kube-proxy"),
		args: []string{
			"--kubeconfig=" + c.path("kubeconfig", "kube-proxy"),
			"--hostname-override=" + nodeName,
			"--proxy-mode=iptables",
			"--cluster-cidr=" + podRange,
			"--iptables-min-sync-period=100ms",
			"--healthz-bind-address=" + net.JoinHostPort(c.nodeIP(), strconv.Itoa(proxyHealth)),
			"--metrics-bind-address=127.0.0.1:10249",
			// The size of the table is the whole machine's, and not to be set from a network namespace.
			"--conntrack-max-per-core=0",
		},
		ready: c.healthz("http", proxyHealth),
	}
}

// writeNodeFiles renders the configuration of containerd, kubelet and the network plugins.
func (c *Cluster) writeNodeFiles() error {
	places := map[string]string{
		"containerd.toml": "node/containerd.toml",
		"kubelet.yaml":    "node/kubelet.yaml",
		"network.json":    "node/cni/10-berg.conflist",
		"hosts.toml":      "node/certs.d/_default/hosts.toml",
	}
	if c.profile().ownPlugin {
		// It writes its own.
		delete(places, "network.json")
		if err := os.MkdirAll(c.path("node", "cni"), 0o700); err != nil {
			return err
		}
	}
	for file, place := range places {
		content, err := c.render(file)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(c.path(place)), 0o700); err != nil {
			return err
		}
		if err := disk.WriteFile(c.path(place), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// render fills in one of the files in node/.
func (c *Cluster) render(file string) ([]byte, error) {
	text, err := fs.ReadFile(nodeFiles, "node/"+file)
	if err != nil {
		return nil, err
	}
	parsed, err := template.New(file).Option("missingkey=error").Parse(string(text))
	if err != nil {
		return nil, err
	}
	chosen, err := os.ReadFile(c.path(snapshotterFile))
	if err != nil {
		return nil, err
	}
	plugins, resolver := pluginDir, ""
	if c.profile().ownPlugin {
		plugins, resolver = c.path("node", "plugins"), outsideIP
	}
	var out bytes.Buffer
	err = parsed.Execute(&out, map[string]any{
		"ID":           c.id(),
		"Node":         c.path("node"),
		"PKI":          c.path("pki"),
		"Registry":     c.registry(),
		"Snapshotter":  string(chosen),
		"Bandwidth":    c.Bandwidth,
		"PauseImage":   build.PauseImage,
		"CoreDNSImage": build.CoreDNSImage,
		"DNS":          serviceIP(10),
		"Domain":       clusterDomain,
		"PodRange":     podRange,
		"MaxPods":      maxPods,
		"Containerd":   "unix://" + containerdSocket,
		"PluginDir":    plugins,
		"Resolver":     resolver,
	})
	return out.Bytes(), err
}

const (
	// pushLimit is how long a push may take; a second is usual. While Cilium takes over the
	// node's network a connection may be cut off without a word, and would wait forever.
	pushLimit = 90 * time.Second
	// pushes is how often it is tried: what is there already is not sent again.
	pushes = 3
)

// push brings images into the node's registry.
func (c *Cluster) push(ctx context.Context, files []string) (err error) {
	for range pushes {
		within, cancel := context.WithTimeout(ctx, pushLimit)
		err = c.pushOnce(within, files)
		late := errors.Is(within.Err(), context.DeadlineExceeded) && ctx.Err() == nil
		cancel()
		if err == nil || !late {
			return err
		}
	}
	return fmt.Errorf("the registry did not take the images within %s, %d times: %w", pushLimit, pushes, err)
}

func (c *Cluster) pushOnce(ctx context.Context, files []string) error {
	args := append([]string{"push", "--ca", c.certificate(clusterAuthority), "--registry", c.registry()}, files...)
	cmd := exec.CommandContext(ctx, c.binary(build.ImageTool.Name, "image"), args...)
	cmd.Env = []string{"HOME=" + c.path("home"), "PATH=" + host.Path}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// LoadImages brings images to where the pods of a cluster find them under the names they have.
func LoadImages(ctx context.Context, p disk.Places, name string, files []string, out io.Writer, show *progress.Progress) error {
	c, err := Open(p, name)
	if err != nil {
		return err
	}
	if !c.hasNode() {
		_, err := fmt.Fprintf(out, "cluster %s is simulated: its pods run no images, so there is nothing to load\n", name)
		return err
	}
	var refs []string
	for _, file := range files {
		named, err := imageNames(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		refs = append(refs, named...)
	}
	return show.Step("loading "+strings.Join(refs, " "), func(func(string)) error {
		if err := c.push(ctx, files); err != nil {
			return err
		}
		// With imagePullPolicy IfNotPresent an image that the node has pulled before would be used once more,
		// although the name now stands for another.
		return c.forget(ctx, refs)
	})
}

// forget makes containerd pull the images again when next they are wanted. Running containers are not touched.
func (c *Cluster) forget(ctx context.Context, refs []string) error {
	args := append([]string{"--namespace", "k8s.io", "images", "remove", "--sync"}, refs...)
	path, args, err := c.inside(c.binary(build.Containerd.Name, "ctr"), args)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	if out, err := cmd.CombinedOutput(); err != nil && !bytes.Contains(out, []byte("not found")) {
		return fmt.Errorf("ctr images remove: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// imageNames reads the names that an image archive, as "docker save" writes them, gives to its images.
func imageNames(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for archive := tar.NewReader(f); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("no manifest.json: not an image archive")
		}
		if err != nil {
			return nil, err
		}
		if header.Name != "manifest.json" {
			continue
		}
		var manifest []struct{ RepoTags []string }
		if err := json.NewDecoder(archive).Decode(&manifest); err != nil {
			return nil, err
		}
		var names []string
		for _, image := range manifest {
			names = append(names, image.RepoTags...)
		}
		if len(names) == 0 {
			return nil, errors.New("the image has no name")
		}
		return names, nil
	}
}
