package deployed

import (
	"context"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Cascades are the values of --cascade of kubectl delete.
var Cascades = []string{"background", "foreground", "orphan"}

// KubectlDelete deletes an object as its user does, and does not wait for its end.
func (c *Cluster) KubectlDelete(ctx context.Context, o client.Object, cascade string) {
	GinkgoHelper()
	gvk, err := apiutil.GVKForObject(o, c.Scheme())
	Expect(err).NotTo(HaveOccurred())
	args := []string{"delete", gvk.Kind + "." + gvk.Version + "." + gvk.Group, o.GetName(), "--cascade=" + cascade, "--wait=false"}
	if o.GetNamespace() != "" {
		args = append(args, "--namespace", o.GetNamespace())
	}
	output, err := exec.CommandContext(ctx, "kubectl", args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
}
