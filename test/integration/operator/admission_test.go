package operator

import (
	"context"
	"fmt"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// admissionSays makes the API server refuse the Deployments of a Challenge, or warn of
// them, with a text: an expression of CEL over the Deployment.
func admissionSays(ctx context.Context, challenge, action, text string) {
	GinkgoHelper()
	policy := apiserver.Object(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  matchConditions:
  - {name: challenge, expression: "object.spec.template.metadata.?labels['%[2]s'].orValue('') == '%[3]s'"}
  validations:
  - {expression: "false", messageExpression: %[4]q}
`, "integration-"+challenge, bergv1.LabelChallenge, challenge, text))
	binding := apiserver.Object(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [%[2]s]}
`, policy.GetName(), action))
	for _, object := range []*unstructured.Unstructured{policy, binding} {
		apiserver.Create(ctx, object)
	}
	// The API server takes a moment to follow a policy.
	probe := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: policy.GetName()},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{bergv1.LabelChallenge: challenge}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{bergv1.LabelChallenge: challenge}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "a", Image: "a", Env: []corev1.EnvVar{{Name: "FLAG", Value: "followed"}},
				}}},
			},
		},
	}
	heard := &warnings{}
	rc := rest.CopyConfig(restConfig)
	rc.WarningHandler = heard
	attentive, err := client.New(rc, client.Options{Scheme: k8s.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() bool {
		err := attentive.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		return err != nil || heard.any.Load()
	}).Should(BeTrue())
}

// warnings notes whether the API server warned.
type warnings struct{ any atomic.Bool }

func (w *warnings) HandleWarningHeader(int, string, string) { w.any.Store(true) }
