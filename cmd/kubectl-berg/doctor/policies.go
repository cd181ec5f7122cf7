package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
)

// The other API groups of the operator. Their packages are not imported: a change of them would concern the plugin.
var (
	quix     = schema.GroupVersion{Group: "quix.io", Version: "v1"}
	kibaship = schema.GroupVersion{Group: "platform.operator.kibaship.com", Version: "v1alpha1"}
	tunnel   = schema.GroupVersion{Group: "usvc-dev.developer.microsoft.com", Version: "v1"}
)

// admissionPolicies are the policies of deploy/fence.yaml and of optional features, in the order of the report.
var admissionPolicies = []struct {
	name, check string
	// risk is the danger without the policy.
	risk string
	// needs are the API groups that start nothing new without the policy; always: it is useful without them, too.
	needs  []schema.GroupVersion
	always bool
	// used reports whether the installation relies on it; nil: it does. install replaces the command for the policies of deploy/fence.yaml.
	used    func(Survey) bool
	install string
}{
	{
		name: admissionpolicy.Fence, check: "operator's account", risk: "a stolen token of the operator could write in every namespace",
		needs: []schema.GroupVersion{quix, kibaship, tunnel}, always: true,
	},
	{
		name: "berg-operator-fence-deletions", check: "operator's deletions",
		risk: "a stolen token of the operator could delete routes and policies of Cilium in every namespace", always: true,
	},
	{
		name: "berg-operator-own-namespace", check: "pods of its namespace",
		risk: "an account that may create pods next to the operator could give them rights on their node", always: true,
	},
	{
		name: "berg-operator-kibaship-tenants", check: "accounts of Projects", risk: "they could take the namespace of their Project from the operator",
		needs: []schema.GroupVersion{kibaship},
	},
	{
		name: "berg-operator-kibaship-confined-pods", check: "pods of Projects", risk: "they could run for seconds without their network policy",
		needs: []schema.GroupVersion{kibaship},
	},
	{
		name: "berg-operator-tunnel-confined-pods", check: "pods of networks", risk: "they could run for seconds without their network policy",
		needs: []schema.GroupVersion{tunnel},
	},
	{
		name: "berg-operator-berg-record-logs", check: "logs of records", risk: "a stolen token of the operator could read logs in every namespace", always: true,
		used:    func(s Survey) bool { return s.setting("RECORD_RETENTION") != "" },
		install: "kubectl apply --server-side -k config/berg/record",
	},
	{
		name: warmPolicy, check: "prepared pods", risk: "a stolen token of the operator could change pods in every namespace", always: true,
		used:    func(s Survey) bool { return s.setting(warmLimit) != "0" },
		install: "kubectl apply --server-side -k config/berg/warm",
	},
	{
		name: "berg-gateway-namespaces", check: "routes of others", risk: "a tenant could label its namespace so that the Gateway serves its routes under your domain", always: true,
		used: func(s Survey) bool {
			return s.Gateway != nil && slices.ContainsFunc(s.Gateway.Spec.Listeners, func(l gatewayv1.Listener) bool {
				return l.AllowedRoutes != nil && l.AllowedRoutes.Namespaces != nil && ptr.Deref(l.AllowedRoutes.Namespaces.From, "") == gatewayv1.NamespacesFromSelector
			})
		},
		install: "kubectl apply --server-side -f config/berg/samples/prerequisites/namespaces_policy.yaml",
	},
}

// policies leaves out a policy that only groups need which the cluster does not serve. So a policy that is not in the result is
// not a missing one.
func (s *surveyor) policies(ctx context.Context, d discovery.DiscoveryInterface) {
	found := map[string]Policy{}
	for _, p := range admissionPolicies {
		var state Policy
		for _, gv := range p.needs {
			if _, err := d.ServerResourcesForGroupVersion(gv.String()); err == nil {
				state.Needs = append(state.Needs, gv.Group)
			}
		}
		if !p.always && len(state.Needs) == 0 {
			continue
		}
		gap, err := admissionpolicy.Read(ctx, s, p.name)
		state.Gap, state.Hidden = gap, err != nil
		found[p.name] = state
	}
	s.set(func() { s.Policies = found })
}

// policiesInForce checks whether the API server enforces the limits that RBAC cannot express.
func policiesInForce(s Survey) (results []Result) {
	for _, p := range admissionPolicies {
		state, known := s.Policies[p.name]
		install := cmp.Or(p.install, admissionpolicy.Install)
		switch {
		case !known || p.used != nil && !p.used(s):
		case state.Hidden:
			results = append(results, result(p.check, console.Unknown, "you may not see whether the admission policy "+p.name+" is in force", askAdministrator)...)
		case state.Gap == "":
			results = append(results, result(p.check, console.OK, "limited by the admission policy "+p.name, "")...)
		case len(state.Needs) > 0:
			results = append(results, result(p.check, console.Problem, fmt.Sprintf("the admission policy %s is not in force: %s. %s start nothing new that relies on it, and %s",
				p.name, state.Gap, strings.Join(state.Needs, ", "), p.risk), install)...)
		default:
			results = append(results, result(p.check, console.Warning, fmt.Sprintf("the admission policy %s is not in force: %s. So %s", p.name, state.Gap, p.risk), install)...)
		}
	}
	return results
}
