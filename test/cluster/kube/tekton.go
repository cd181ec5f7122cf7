package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/client"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/host"
	"github.com/bergctf/berg-operator/test/cluster/pki"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

// What is particular to profile tekton: Tekton Pipelines in pods, a git server on a host next to the node, and a
// registry that requires a login.
const (
	gitName = "git"
	// buildsName is the registry that builds push to; that of the cluster requires no login.
	buildsName = "builds"
	buildsPort = "5001"

	// Secrets of a cluster that no other program reaches. Files of these names hold them, for tests.
	gitToken      = "token-of-private-repositories"
	registryLogin = "builder:password-of-the-registry"
)

// tektonProfile has Tekton Pipelines on the node.
func tektonProfile() profile {
	return profile{
		name:       ProfileTekton,
		parts:      []*build.Part{build.Tekton, build.TektonImages, build.Kaniko, build.Distribution, build.BuildImages, build.GitServer},
		packages:   tektonPackages(),
		components: []string{gitName, buildsName},
		identities: func(c *Cluster) []pki.Identity {
			return []pki.Identity{
				{Name: gitName, Authority: clusterAuthority, User: gitName, Hosts: []string{outsideIP}},
				{Name: buildsName, Authority: clusterAuthority, User: buildsName, Hosts: []string{c.nodeIP()}},
			}
		},
		images:  []*build.Part{build.TektonImages, build.BuildImages},
		prepare: prepareTekton,
		install: installTekton,
		checks: []func(context.Context, *Cluster, *client.Client) error{
			func(ctx context.Context, c *Cluster, _ *client.Client) error {
				if !c.linked(ctx, gitName) {
					return errors.New("the git server is not connected")
				}
				return nil
			},
			tektonReady,
		},
		ready: "Tekton ready", suspect: "kubelet",
	}
}

// tektonPackages are those of the images that builds need.
func tektonPackages() host.Packages {
	all := maps.Clone(build.GitPackages)
	all[build.BusyboxPackage] = []string{build.Busybox}
	return all
}

// prepareTekton starts the git server, which has no repositories yet.
func prepareTekton(ctx context.Context, c *Cluster, show *progress.Progress) error {
	for _, organization := range []string{"public", "private"} {
		if err := os.MkdirAll(c.path("git", organization), 0o700); err != nil {
			return err
		}
	}
	settings := map[string]any{
		"git":          "https://" + outsideIP,
		"token":        gitToken,
		"repositories": c.path("git"),
		"registry":     c.builds(),
		"login":        registryLogin,
		"authority":    c.certificate(clusterAuthority),
		"baseImages":   c.registry(),
		"definitions":  c.binary(build.Tekton.Name, "crds"),
	}
	text, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return err
	}
	// containerd hands the login of a pod's Secret to the host that the image is of, if it is not told of another.
	hosts := fmt.Sprintf("server = \"https://%[1]s\"\nca = %[2]q\n\n[host.\"https://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n  ca = %[2]q\n",
		c.builds(), c.certificate(clusterAuthority))
	certs := c.path("node", "certs.d", c.builds())
	if err := os.MkdirAll(certs, 0o700); err != nil {
		return err
	}
	for file, content := range map[string]string{
		c.path("git-token"):                gitToken + "\n",
		c.path("registry-login"):           registryLogin + "\n",
		c.path("tekton.json"):              string(text) + "\n",
		filepath.Join(certs, "hosts.toml"): hosts,
	} {
		if err := disk.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
	}
	server := component{
		name: gitName,
		path: c.binary(build.GitServer.Name, "gitserver"),
		args: []string{
			"--listen", ":443", "--cert", c.certificate(gitName), "--key", c.key(gitName), "--root", c.path("git"),
			"--token-file", c.path("git-token"), "--backend", build.GitBackend,
		},
		cloneflags: syscall.CLONE_NEWNET,
	}
	return c.bringBeside(ctx, show, "git server on a host next to the node", server, func(_, there string) []string {
		return []string{there + " route replace default via " + outsideGateway}
	})
}

func (c *Cluster) builds() string { return net.JoinHostPort(c.nodeIP(), buildsPort) }

// installTekton starts the registry and applies Tekton, and does not wait for its pods.
func installTekton(ctx context.Context, c *Cluster, api *client.Client, show *progress.Progress) error {
	registry := component{
		name: buildsName,
		path: c.binary(build.ImageTool.Name, "image"),
		args: []string{
			"serve", "--listen", c.builds(), "--cert", c.certificate(buildsName), "--key", c.key(buildsName),
			"--dir", c.path("builds"), "--login", c.path("registry-login"),
		},
		ready: dial("tcp", c.builds()),
	}
	if err := c.bring(ctx, show, "registry with a login", registry); err != nil {
		return err
	}
	return show.Step("Tekton applied", func(func(string)) error {
		definitions, err := client.ReadDefinitions(c.binary(build.Tekton.Name, "crds/*.yaml"))
		if err != nil {
			return err
		}
		if err := c.define(ctx, api, definitions); err != nil {
			return err
		}
		manifest, err := os.ReadFile(c.binary(build.Tekton.Name, "tekton.yaml"))
		if err != nil {
			return err
		}
		return c.apply(ctx, string(manifest))
	})
}

// tektonReady wants Tekton's programs to run, and its webhook to have told the API server of itself: before, every
// object of Tekton's is refused.
func tektonReady(ctx context.Context, _ *Cluster, api *client.Client) error {
	for _, name := range []string{"tekton-pipelines-controller", "tekton-pipelines-webhook"} {
		if err := api.DeploymentReady(ctx, "tekton-pipelines", name); err != nil {
			return err
		}
	}
	var configuration struct {
		Webhooks []struct {
			ClientConfig struct {
				CABundle string `json:"caBundle"`
			} `json:"clientConfig"`
		} `json:"webhooks"`
	}
	if err := api.Get(ctx, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/webhook.pipeline.tekton.dev", &configuration); err != nil {
		return err
	}
	for _, webhook := range configuration.Webhooks {
		if bundle, err := base64.StdEncoding.DecodeString(webhook.ClientConfig.CABundle); err != nil || len(bundle) == 0 {
			return errors.New("the webhook of Tekton has no certificate yet")
		}
	}
	return nil
}
