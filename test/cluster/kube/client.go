package kube

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/bergctf/berg-operator/test/cluster/client"
	"github.com/bergctf/berg-operator/test/cluster/host"
)

// client returns one for the administrator.
func (c *Cluster) client() (*client.Client, error) {
	return client.New(c.apiURL(), c.certificate("admin"), c.key("admin"), c.certificate(clusterAuthority))
}

// apply hands a manifest to the cluster's own kubectl.
func (c *Cluster) apply(ctx context.Context, manifest string) error {
	cmd := exec.CommandContext(ctx, c.kubectl(), "apply", "--server-side", "--force-conflicts", "--field-manager=berg-cluster", "-f", "-")
	cmd.Env = []string{"KUBECONFIG=" + c.Kubeconfig(), "HOME=" + c.path("home"), "PATH=" + host.Path}
	cmd.Stdin = strings.NewReader(manifest)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
