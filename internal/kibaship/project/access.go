package project

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
)

// operatorBinding is by which the operator itself may work in the namespace, and nowhere else. The rights in a Project end with
// the Project: the operator has none in other namespaces by this ClusterRole.
func operatorBinding(in Inputs) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: in.ours(naming.OperatorBinding(in.Name)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: in.Admin},
		Subjects:   []rbacv1.Subject{in.Operator},
	}
}

func serviceAccount(in Inputs) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: in.ours(naming.ServiceAccount(in.Name))}
}

// adminRole returns the rights of the Project's ServiceAccount in its namespace: all, unless the
// Project or the operator's settings ask for bounds. With all rights the account could remove the bounds: the namespace is an
// object in itself, and "*" lets a subject grant itself more than it has.
func adminRole(in Inputs) *rbacv1.Role {
	rules := []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll},
	}}
	if bounded(in.Spec) {
		rules = append(boundedRules(), in.Extra...)
	}
	return &rbacv1.Role{ObjectMeta: in.ours(naming.AdminRole(in.Name)), Rules: rules}
}

// bounded reports whether an effective spec has something that the Project's ServiceAccount must not be
// able to take off.
func bounded(spec kibashipv1.ProjectSpec) bool {
	return spec.PodSecurity != "" || len(spec.Quota) > 0 || spec.ContainerLimits != nil || spec.NetworkPolicy != nil
}

// boundedRules let a ServiceAccount manage the objects that applications consist of. They leave out: the namespace itself,
// quotas, limits and network policies; every status, which the operator and Kubernetes write; the verbs bind, escalate and
// impersonate, so that it can hand out no more than it has; and writing Endpoints and EndpointSlices, with which a Service leads
// anywhere (CVE-2021-25740: Kubernetes' own roles edit and admin lack that, too).
func boundedRules() []rbacv1.PolicyRule {
	var (
		work = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
		read = []string{"get", "list", "watch"}
	)
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Verbs: work, Resources: []string{
			"pods", "pods/attach", "pods/ephemeralcontainers", "pods/eviction", "pods/exec", "pods/log", "pods/portforward",
			"pods/proxy", "pods/resize", "services", "services/proxy", "configmaps", "secrets", "events",
			"persistentvolumeclaims", "podtemplates", "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "serviceaccounts/token",
		}},
		{APIGroups: []string{""}, Verbs: read, Resources: []string{
			"endpoints", "limitranges", "namespaces", "persistentvolumeclaims/status", "pods/status", "replicationcontrollers/status",
			"resourcequotas", "resourcequotas/status", "services/status",
		}},
	}
	for _, rights := range []struct {
		group      string
		work, read []string
	}{
		{"apps", []string{
			"daemonsets", "deployments", "deployments/rollback", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale",
		}, []string{"controllerrevisions", "daemonsets/status", "deployments/status", "replicasets/status", "statefulsets/status"}},
		{"autoscaling", []string{"horizontalpodautoscalers"}, []string{"horizontalpodautoscalers/status"}},
		{"batch", []string{"cronjobs", "jobs"}, []string{"cronjobs/status", "jobs/status"}},
		{"coordination.k8s.io", []string{"leases"}, nil},
		{"discovery.k8s.io", nil, []string{"endpointslices"}},
		{"events.k8s.io", []string{"events"}, nil},
		{"gateway.networking.k8s.io", []string{
			"backendtlspolicies", "gateways", "grpcroutes", "httproutes", "listenersets", "referencegrants", "tcproutes", "tlsroutes", "udproutes",
		}, []string{
			"backendtlspolicies/status", "gateways/status", "grpcroutes/status", "httproutes/status", "listenersets/status", "tcproutes/status", "tlsroutes/status", "udproutes/status",
		}},
		{"networking.k8s.io", []string{"ingresses"}, []string{"ingresses/status", "networkpolicies"}},
		{"policy", []string{"poddisruptionbudgets"}, []string{"poddisruptionbudgets/status"}},
		{rbacv1.GroupName, []string{"roles", "rolebindings"}, nil},
		{"tekton.dev", []string{"customruns", "pipelineruns", "pipelines", "stepactions", "taskruns", "tasks"}, []string{
			"customruns/status", "pipelineruns/status", "taskruns/status",
		}},
		{kibashipv1.GroupVersion.Group, []string{"applications", "deployments"}, []string{"applications/status", "deployments/status"}},
	} {
		if rights.work != nil {
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{rights.group}, Verbs: work, Resources: rights.work})
		}
		if rights.read != nil {
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{rights.group}, Verbs: read, Resources: rights.read})
		}
	}
	return rules
}

func adminBinding(in Inputs) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: in.ours(naming.AdminBinding(in.Name)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: naming.AdminRole(in.Name)},
		Subjects:   []rbacv1.Subject{projectAccount(in)},
	}
}

func projectAccount(in Inputs) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: naming.Namespace(in.Name), Name: naming.ServiceAccount(in.Name)}
}
