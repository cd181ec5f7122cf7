package apiserver

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Refusal is what the API server says to what Deny denies.
const Refusal = "not today"

// ByOperator is a condition of a Denial: others than the operator may do as they like.
const ByOperator = "request.userInfo.username == '" + OperatorUser + "'"

// Denial is what an admission policy refuses.
type Denial struct {
	// Name is that of the policy and of its binding.
	Name string
	// Group, Resources and Operation say what is refused, as in a rule of a policy:
	// "apps", "deployments", "CREATE".
	Group     string
	Resources []string
	Operation string
	// Labels select the namespaces in which it is refused: all if there are none. A namespace
	// itself is selected by its own labels; what is in no namespace is always selected.
	Labels map[string]string
	// Conditions are expressions of CEL over the request. All must hold.
	Conditions []string
}

// Deny makes the API server refuse something until lift is called, at the latest until the
// spec ends. It returns when every attempt is refused: the API server takes a moment before
// it follows a new policy.
func Deny(ctx context.Context, d Denial, attempts ...func() error) (lift func()) {
	GinkgoHelper()
	name := strings.ToLower(d.Name)
	conditions := make([]any, len(d.Conditions))
	for n, expression := range d.Conditions {
		conditions[n] = map[string]any{"name": fmt.Sprint("condition-", n), "expression": expression}
	}
	policy := Object(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [%q], apiVersions: ["*"], resources: ["%s"], operations: [%s]}]
  validations: [{expression: "false", message: %s}]`, name, d.Group, strings.Join(d.Resources, `", "`), d.Operation, Refusal))
	policy.Object["spec"].(map[string]any)["matchConditions"] = conditions
	labels := map[string]any{}
	for label, value := range d.Labels {
		labels[label] = value
	}
	binding := Object(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %s}
spec:
  policyName: %s
  validationActions: [Deny]`, name, name))
	binding.Object["spec"].(map[string]any)["matchResources"] = map[string]any{"namespaceSelector": map[string]any{"matchLabels": labels}}
	Expect(Client.Create(ctx, policy)).To(Succeed())
	Expect(Client.Create(ctx, binding)).To(Succeed())
	lift = func() {
		for _, o := range []client.Object{binding, policy} {
			Expect(client.IgnoreNotFound(Client.Delete(context.Background(), o))).To(Succeed())
		}
	}
	DeferCleanup(lift)
	for _, attempt := range attempts {
		Eventually(attempt).Should(MatchError(ContainSubstring(Refusal)), name)
	}
	return lift
}
