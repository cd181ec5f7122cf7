package olm

import (
	"context"
	"errors"
	"os/exec"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bergctf/berg-operator/test/lib/expect"
)

const gate = "berg-gate"

// accessOfGate applies, or deletes, what docs/olm.md has administrators apply for the gate.
func accessOfGate(ctx context.Context, arguments ...string) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "kubectl", append(arguments, "-k", "config/gate/access")...)
	command.Dir = "../../.."
	out, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
}

// expectGate waits until all replicas of the gate are of a version, and, where it is on, until it accepts its class.
func expectGate(ctx context.Context, version string, on bool) {
	GinkgoHelper()
	expect.Until(ctx, installLimit, func(ctx context.Context) error {
		if err := rolledOut(ctx, gate, version); err != nil || !on {
			return err
		}
		class := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass"}}
		if err := world.Get(ctx, client.ObjectKey{Name: gate}, class); err != nil {
			return err
		}
		all, _, _ := unstructured.NestedSlice(class.Object, "status", "conditions")
		for _, one := range all {
			fields, _ := one.(map[string]any)
			if fields["type"] == "Accepted" && fields["status"] == string(metav1.ConditionTrue) {
				return nil
			}
		}
		return errors.New("the gate has not accepted its class")
	})
}
