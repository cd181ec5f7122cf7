package integration

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// refusal is the message of the policies that refuse makes.
const refusal = "not today"

// refuse lets the API server refuse an operation on a resource in the namespace
// of one owner, or on the namespace itself, until lift is called.
func refuse(ctx context.Context, owner, group, resource, operation string) (lift func()) {
	GinkgoHelper()
	return refuseWhere(ctx, bergv1.LabelOwnerID, owner, group, resource, operation)
}

// refuseWhere is refuse for all namespaces that have a label.
func refuseWhere(ctx context.Context, label, value, group, resource, operation string) (lift func()) {
	GinkgoHelper()
	name := strings.ToLower(fmt.Sprintf("%s-%s-%s", operation, resource, value))
	selector := fmt.Sprintf("{matchLabels: {%s: %s}}", label, value)
	policy := object(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [%q], apiVersions: ["*"], resources: [%s], operations: [%s]}]
  validations: [{expression: "false", message: %s}]`, name, group, resource, operation, refusal))
	binding := object(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %s}
spec:
  policyName: %s
  validationActions: [Deny]
  matchResources: {namespaceSelector: %s}`, name, name, selector))
	Expect(k8s.Create(ctx, policy)).To(Succeed())
	Expect(k8s.Create(ctx, binding)).To(Succeed())
	lift = func() {
		for _, o := range []client.Object{binding, policy} {
			Expect(client.IgnoreNotFound(k8s.Delete(context.Background(), o))).To(Succeed())
		}
	}
	DeferCleanup(lift)

	// The API server takes a moment before it follows a new policy.
	probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namespacePrefix, Labels: map[string]string{label: value}}}
	attempt := func() error { return k8s.Create(ctx, probe.DeepCopy(), client.DryRunAll) }
	if resource != "namespaces" || operation != "CREATE" {
		Expect(k8s.Create(ctx, probe)).To(Succeed())
		attempt = func() error { return k8s.Delete(ctx, probe, client.DryRunAll) }
	}
	if resource != "namespaces" {
		inside := object(probes[resource])
		inside.SetName("probe")
		inside.SetNamespace(probe.Name)
		attempt = func() error { return k8s.Create(ctx, inside.DeepCopy(), client.DryRunAll) }
		if operation == "UPDATE" {
			Expect(k8s.Create(ctx, inside)).To(Succeed())
			attempt = func() error {
				if err := k8s.Get(ctx, client.ObjectKeyFromObject(inside), inside); err != nil {
					return err
				}
				return k8s.Update(ctx, inside.DeepCopy(), client.DryRunAll)
			}
		}
	}
	Eventually(attempt).Should(MatchError(ContainSubstring(refusal)))
	return lift
}

// probes are objects that the API server accepts where nothing is refused.
var probes = map[string]string{
	"services":   `{apiVersion: v1, kind: Service, spec: {ports: [{port: 1}]}}`,
	"pods":       `{apiVersion: v1, kind: Pod, spec: {containers: [{name: a, image: a}]}}`,
	"configmaps": `{apiVersion: v1, kind: ConfigMap}`,
	"deployments": `
apiVersion: apps/v1
kind: Deployment
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}`,
	"ciliumnetworkpolicies": `{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, spec: {endpointSelector: {}, egress: [{toEntities: [host]}]}}`,
	"tlsroutes":             `{apiVersion: gateway.networking.k8s.io/v1, kind: TLSRoute, spec: {hostnames: [a.example.com], rules: [{backendRefs: [{name: a, port: 1}]}]}}`,
}

func object(text string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(text), &o.Object)).To(Succeed())
	return o
}
