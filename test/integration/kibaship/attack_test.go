package kibaship

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
)

// accountOf is the user name of a Project's ServiceAccount at the API server.
func accountOf(project string) string {
	return "system:serviceaccount:" + kibashiptest.Namespace(project) + ":project-" + project + "-sa-kibaship-com"
}

// privileged is a pod that owns its node.
func privileged(namespace string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "privileged"},
		Spec: corev1.PodSpec{
			HostPID: true,
			Containers: []corev1.Container{{
				Name: "shell", Image: "registry.example.org/shell", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
			}},
		},
	}
}

// open lets everything in and out.
func open(namespace, name string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{}}, Egress: []networkingv1.NetworkPolicyEgressRule{{}},
		},
	}
}

// grantAllRights runs an operator that gives the account of a project without bounds all rights in its namespace, as the contract has
// it, until the spec ends. The fence allows that to an operator with an exemption alone.
func grantAllRights(ctx context.Context) {
	GinkgoHelper()
	name := metav1.ObjectMeta{Name: "privileged-projects"}
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"fence.berg.norelect.ch"}, Resources: []string{"exemptions"}, ResourceNames: []string{"kibaship-privileged"}, Verbs: []string{"use"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: apiserver.OperatorUser}},
		},
	} {
		apiserver.Create(ctx, o)
	}
	inprocess.Restart(map[string]string{"PROJECT_POD_SECURITY": "privileged"}, nil)
}

func forbidden(err error) { GinkgoHelper(); Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err) }

var _ = Describe("The ServiceAccount of a project", func() {
	It("has all rights in its namespace and none elsewhere", func(ctx context.Context) {
		grantAllRights(ctx)
		p := kibashiptest.Project(ctx, kibashiptest.NewName())
		other := kibashiptest.Project(ctx, kibashiptest.NewName())
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		expect.Settles(ctx, other, kibashipv1.ProjectReady)
		own := kibashiptest.Namespace(p.Name)
		for _, what := range []authorizationv1.ResourceAttributes{
			{Verb: "create", Resource: "pods"},
			{Verb: "get", Resource: "secrets"},
			{Verb: "create", Group: "apps", Resource: "deployments"},
			{Verb: "delete", Group: "tekton.dev", Resource: "pipelineruns"},
			{Verb: "create", Group: rbacv1.GroupName, Resource: "rolebindings"},
		} {
			what.Namespace = own
			Expect(apiserver.May(ctx, accountOf(p.Name), what)).To(BeTrue(), "%+v", what)
			for _, elsewhere := range []string{kibashiptest.Namespace(other.Name), "default", "kube-system", "berg-operator-system", "tekton-pipelines", ""} {
				what.Namespace = elsewhere
				Expect(apiserver.May(ctx, accountOf(p.Name), what)).To(BeFalse(), "%+v", what)
			}
		}
		for _, what := range []authorizationv1.ResourceAttributes{
			{Verb: "list", Resource: "namespaces"},
			{Verb: "create", Resource: "namespaces"},
			{Verb: "get", Resource: "nodes"},
			{Verb: "create", Resource: "persistentvolumes"},
			{Verb: "create", Group: rbacv1.GroupName, Resource: "clusterrolebindings"},
			{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: kibashipv1.ProjectAdmin},
			{Verb: "create", Group: kibashipv1.GroupVersion.Group, Resource: "projects"},
			{Verb: "patch", Group: kibashipv1.GroupVersion.Group, Resource: "projects", Name: p.Name},
			{Verb: "update", Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
		} {
			Expect(apiserver.May(ctx, accountOf(p.Name), what)).To(BeFalse(), "%+v", what)
		}
		thief := apiserver.As(accountOf(p.Name))
		forbidden(thief.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "thief"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: accountOf(p.Name)}},
		}))
		forbidden(thief.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kibashiptest.Namespace(other.Name)}}))
	})

	It("cannot take off the bounds that its project asks for, nor raise itself", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx, func(p *kibashipv1.Project) { bound(&p.Spec) })
		namespace := kibashiptest.Namespace(p.Name)
		limits := "project-" + p.Name + "-limits-kibaship-com"
		thief := apiserver.As(accountOf(p.Name))

		By("running a privileged pod")
		err := thief.Create(ctx, privileged(namespace))
		forbidden(err)
		Expect(err).To(MatchError(ContainSubstring("violates PodSecurity")))

		By("taking the label off, or the namespace away")
		ns := &corev1.Namespace{}
		Expect(thief.Get(ctx, client.ObjectKey{Name: namespace}, ns)).To(Succeed())
		before := ns.DeepCopy()
		delete(ns.Labels, "pod-security.kubernetes.io/enforce")
		forbidden(thief.Patch(ctx, ns, client.MergeFrom(before)))
		forbidden(thief.Delete(ctx, ns))

		By("letting a pod outlive the network policy")
		clinging := privileged(namespace)
		clinging.Name, clinging.Spec.HostPID, clinging.Spec.Containers[0].SecurityContext = "clinging", false, nil
		clinging.Spec.TerminationGracePeriodSeconds = new(int64)
		Expect(thief.Create(ctx, clinging, client.DryRunAll)).To(MatchError(ContainSubstring("terminationGracePeriodSeconds must be 1 or more")))
		Expect(before.Labels).To(HaveKeyWithValue(kibashipv1.LabelConfined, "true"))

		By("changing what limits it")
		for _, what := range []authorizationv1.ResourceAttributes{
			{Resource: "resourcequotas", Name: limits},
			{Resource: "limitranges", Name: limits},
			{Resource: "networkpolicies", Group: "networking.k8s.io", Name: limits},
			{Resource: "namespaces", Name: namespace},
			{Resource: "namespaces", Subresource: "finalize", Name: namespace},
		} {
			what.Namespace = namespace
			for _, verb := range []string{"update", "patch", "delete", "deletecollection", "create"} {
				what.Verb = verb
				Expect(apiserver.May(ctx, accountOf(p.Name), what)).To(BeFalse(), "%+v", what)
			}
		}

		By("granting itself what it does not have")
		greedy := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "greedy"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces", "resourcequotas"}, Verbs: []string{"update"}}},
		}
		forbidden(thief.Create(ctx, greedy))
		for _, name := range []string{kibashipv1.ProjectAdmin, "cluster-admin", "admin"} {
			forbidden(thief.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "greedy"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: accountOf(p.Name)}},
			}))
		}
		own := &rbacv1.Role{}
		Expect(thief.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "project-" + p.Name + "-admin-role-kibaship-com"}, own)).To(Succeed())
		more := own.DeepCopy()
		more.Rules = everything
		forbidden(thief.Update(ctx, more))

		By("impersonating, or using the operator's binding")
		Expect(apiserver.May(ctx, accountOf(p.Name), authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "impersonate", Resource: "serviceaccounts"})).To(BeFalse())
		var bindings rbacv1.RoleBindingList
		Expect(thief.List(ctx, &bindings, client.InNamespace(namespace))).To(Succeed())
		for i := range bindings.Items {
			binding := &bindings.Items[i]
			if binding.RoleRef.Name == kibashipv1.ProjectAdmin {
				binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: accountOf(p.Name)})
				forbidden(thief.Update(ctx, binding))
			}
		}

		By("doing its work all the same")
		Expect(thief.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "work"}})).To(Succeed())
		Expect(thief.Create(ctx, kibashiptest.NewApplication(p.Name, "work"))).To(Succeed())
	})

	It("cannot take its namespace from its project, nor take bounds off that an administrator sets", func(ctx context.Context) {
		grantAllRights(ctx)
		p := kibashiptest.Ready(ctx)
		namespace := kibashiptest.Namespace(p.Name)
		thief := apiserver.As(accountOf(p.Name))
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: namespace})
		patch := func(change func(*corev1.Namespace)) error {
			changed := ns.DeepCopy()
			change(changed)
			return thief.Patch(ctx, changed, client.MergeFrom(ns), client.DryRunAll)
		}
		// The API server takes a moment before it follows a policy.
		Eventually(func() error { return patch(func(ns *corev1.Namespace) { ns.OwnerReferences = nil }) }).Should(MatchError(apierrors.IsForbidden, "IsForbidden"))
		for _, change := range []func(*corev1.Namespace){
			func(ns *corev1.Namespace) { delete(ns.Labels, kibashipv1.LabelUUID) },
			func(ns *corev1.Namespace) { ns.Labels[kibashipv1.LabelUUID] = "other" },
			func(ns *corev1.Namespace) { delete(ns.Annotations, kibashipv1.AnnotationProjectUID) },
			func(ns *corev1.Namespace) { ns.Labels["pod-security.kubernetes.io/enforce"] = "privileged" },
		} {
			forbidden(patch(change))
		}
		Expect(patch(func(ns *corev1.Namespace) { ns.Labels["tenant.example/stage"] = "live" })).To(Succeed())
		Expect(thief.SubResource("finalize").Update(ctx, ns.DeepCopy())).To(MatchError(apierrors.IsForbidden, "IsForbidden"))

		By("writing the status of its applications")
		app := kibashiptest.Application(ctx, p.Name, "forged")
		forged := app.DeepCopy()
		forged.Status.Phase = kibashipv1.ApplicationReady
		err := thief.Status().Patch(ctx, forged, client.MergeFrom(app))
		forbidden(err)
		Expect(err).To(MatchError(ContainSubstring("which the operator writes")))
		deployment := kibashiptest.NewDeployment(p.Name, "forged", "one")
		Expect(k8s.Create(ctx, deployment)).To(Succeed())
		built := deployment.DeepCopy()
		built.Status.BuiltImage = &kibashipv1.BuiltImage{Reference: "registry.example.com/attacker:1"}
		forbidden(thief.Status().Patch(ctx, built, client.MergeFrom(deployment)))
		Expect(thief.Patch(ctx, app.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tenant.example/a":"b"}}}`)))).To(Succeed())

		By("taking the traffic of others")
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "greedy"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, ExternalIPs: []string{"192.0.2.1"}},
		}
		forbidden(thief.Create(ctx, service))
		service.Spec.ExternalIPs, service.Spec.Type = nil, corev1.ServiceTypeLoadBalancer
		Expect(thief.Create(ctx, service)).To(Succeed())
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		forbidden(thief.Status().Update(ctx, service, client.DryRunAll))

		By("saying that an administrator allows its network policy")
		policy := open(namespace, "allowed")
		policy.Labels = map[string]string{kibashipv1.LabelAllowed: "true"}
		forbidden(thief.Create(ctx, policy, client.DryRunAll))
		Expect(k8s.Create(ctx, policy)).To(Succeed())
		before := policy.DeepCopy()
		policy.Spec.Egress = append(policy.Spec.Egress, networkingv1.NetworkPolicyEgressRule{})
		forbidden(thief.Patch(ctx, policy, client.MergeFrom(before), client.DryRunAll))
		policy.Labels = nil
		forbidden(thief.Patch(ctx, policy, client.MergeFrom(before), client.DryRunAll))
	})

	It("cannot hand to others what it may not do itself", func(ctx context.Context) {
		grantAllRights(ctx)
		p := kibashiptest.Project(ctx, kibashiptest.NewName())
		other := kibashiptest.Project(ctx, kibashiptest.NewName())
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
		expect.Settles(ctx, other, kibashipv1.ProjectReady)
		namespace := kibashiptest.Namespace(p.Name)
		thief := apiserver.As(accountOf(p.Name))
		Expect(thief.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "handed"}, Rules: everything})).To(Succeed())
		Expect(thief.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "handed"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "handed"},
			Subjects: []rbacv1.Subject{
				{Kind: rbacv1.ServiceAccountKind, Namespace: kibashiptest.Namespace(other.Name), Name: "project-" + other.Name + "-sa-kibaship-com"},
				{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "friend"},
			},
		})).To(Succeed())
		ns := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: namespace})
		app := kibashiptest.Application(ctx, p.Name, "forged")
		for _, name := range []string{accountOf(other.Name), "friend"} {
			friend := apiserver.As(name)
			patch := func(change func(*corev1.Namespace)) error {
				changed := ns.DeepCopy()
				change(changed)
				return friend.Patch(ctx, changed, client.MergeFrom(ns), client.DryRunAll)
			}
			// The API server takes a moment before it knows the binding.
			Eventually(func() error { return patch(func(ns *corev1.Namespace) { ns.Labels["tenant.example/stage"] = "live" }) }).Should(Succeed())
			forbidden(patch(func(ns *corev1.Namespace) { delete(ns.Labels, kibashipv1.LabelUUID) }))
			forbidden(patch(func(ns *corev1.Namespace) { ns.OwnerReferences = nil }))
			forbidden(patch(func(ns *corev1.Namespace) { ns.Labels["pod-security.kubernetes.io/enforce"] = "privileged" }))
			forged := app.DeepCopy()
			forged.Status.Phase = kibashipv1.ApplicationReady
			forbidden(friend.Status().Patch(ctx, forged, client.MergeFrom(app), client.DryRunAll))
			forbidden(friend.Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "greedy"},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}, ExternalIPs: []string{"192.0.2.1"}},
			}, client.DryRunAll))
		}

		By("an administrator, who may do so in the whole cluster")
		changed := ns.DeepCopy()
		changed.Labels["pod-security.kubernetes.io/warn"] = "baseline"
		Expect(k8s.Patch(ctx, changed, client.MergeFrom(ns), client.DryRunAll)).To(Succeed())

		By("bounds that are set later, which name the binding")
		apiserver.Change(ctx, p, func() { bound(&p.Spec) })
		expect.Becomes(ctx, p, func(g Gomega) {
			c := meta.FindStatusCondition(p.Status.Conditions, kibashipv1.ConditionLimitsReady)
			g.Expect(c).To(And(HaveField("Reason", kibashipv1.ReasonRightsExceedBounds), HaveField("Message", ContainSubstring("handed"))))
		})
	})

	It("has network policies that are older than the bounds, and its project says so until they are gone", func(ctx context.Context) {
		grantAllRights(ctx)
		p := kibashiptest.Ready(ctx)
		namespace := kibashiptest.Namespace(p.Name)
		thief := apiserver.As(accountOf(p.Name))
		older, wanted := open(namespace, "older"), open(namespace, "wanted")
		older.Labels = map[string]string{kibashipv1.LabelManagedBy: kibashipv1.ManagedBy}
		Expect(thief.Create(ctx, older)).To(Succeed())
		Expect(k8s.Create(ctx, wanted)).To(Succeed())

		apiserver.Change(ctx, p, func() { bound(&p.Spec) })
		says := func(names ...string) {
			GinkgoHelper()
			expect.Becomes(ctx, p, func(g Gomega) {
				c := meta.FindStatusCondition(p.Status.Conditions, kibashipv1.ConditionLimitsReady)
				g.Expect(c).To(And(HaveField("Reason", kibashipv1.ReasonPoliciesExceedBounds), HaveField("Message", ContainSubstring(": "+strings.Join(names, ", ")+". "))))
				g.Expect(p.Status.Phase).To(Equal(kibashipv1.ProjectFailed))
			})
		}
		says("older", "wanted")
		apiserver.Change(ctx, wanted, func() { wanted.Labels = map[string]string{kibashipv1.LabelAllowed: "true"} })
		Expect(k8s.Delete(ctx, older)).To(Succeed())
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
	})

	It("has rights that are older than the bounds, and its project says so until they are gone", func(ctx context.Context) {
		grantAllRights(ctx)
		p := kibashiptest.Ready(ctx)
		namespace := kibashiptest.Namespace(p.Name)
		thief := apiserver.As(accountOf(p.Name))
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "older"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "older"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "older"}},
		}
		Expect(thief.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "older"}, Rules: everything})).To(Succeed())
		Expect(thief.Create(ctx, binding)).To(Succeed())

		apiserver.Change(ctx, p, func() { bound(&p.Spec) })
		expect.Becomes(ctx, p, func(g Gomega) {
			c := meta.FindStatusCondition(p.Status.Conditions, kibashipv1.ConditionLimitsReady)
			g.Expect(c).To(And(HaveField("Reason", kibashipv1.ReasonRightsExceedBounds), HaveField("Message", ContainSubstring("older"))))
			g.Expect(p.Status.Phase).To(Equal(kibashipv1.ProjectFailed))
		})
		Expect(k8s.Delete(ctx, binding)).To(Succeed())
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
	})

	It("writes no status and no endpoints within bounds", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx, func(p *kibashipv1.Project) { bound(&p.Spec) })
		for _, what := range []authorizationv1.ResourceAttributes{
			{Group: kibashipv1.GroupVersion.Group, Resource: "applications", Subresource: "status"},
			{Group: kibashipv1.GroupVersion.Group, Resource: "deployments", Subresource: "status"},
			{Group: "apps", Resource: "deployments", Subresource: "status"},
			{Resource: "services", Subresource: "status"},
			{Resource: "endpoints"},
			{Group: "discovery.k8s.io", Resource: "endpointslices"},
		} {
			what.Namespace = kibashiptest.Namespace(p.Name)
			for _, verb := range []string{"create", "update", "patch", "delete"} {
				what.Verb = verb
				Expect(apiserver.May(ctx, accountOf(p.Name), what)).To(BeFalse(), "%+v", what)
			}
		}
	})

	It("gets within bounds what an administrator adds, but no way out of them", func(ctx context.Context) {
		p := kibashiptest.Ready(ctx, func(p *kibashipv1.Project) { bound(&p.Spec) })
		may := func(group, resource, verb string) func() bool {
			return func() bool {
				return apiserver.May(ctx, accountOf(p.Name), authorizationv1.ResourceAttributes{
					Namespace: kibashiptest.Namespace(p.Name), Group: group, Resource: resource, Verb: verb,
				})
			}
		}
		Expect(may("cert-manager.io", "certificates", "create")()).To(BeFalse())
		role := func(name, group, resource string) *rbacv1.ClusterRole {
			made := &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: name + "-" + p.Name, Labels: map[string]string{kibashipv1.LabelAggregate: "true"}},
				Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"create", "update"}}},
			}
			apiserver.Create(ctx, made)
			return made
		}
		added := role("certificates", "cert-manager.io", "certificates")
		Eventually(may("cert-manager.io", "certificates", "create")).Should(BeTrue())
		expect.Settles(ctx, p, kibashipv1.ProjectReady)

		refused := role("quotas", "", "resourcequotas")
		expect.Becomes(ctx, p, func(g Gomega) {
			g.Expect(meta.FindStatusCondition(p.Status.Conditions, kibashipv1.ConditionAccessReady).Message).To(ContainSubstring(refused.Name))
		})
		Expect(may("", "resourcequotas", "update")()).To(BeFalse())
		Expect(may("cert-manager.io", "certificates", "create")()).To(BeTrue())

		By("taking the label off")
		apiserver.Change(ctx, added, func() { added.Labels = nil })
		Eventually(may("cert-manager.io", "certificates", "create")).Should(BeFalse())
	})

	It("in the operator's own hands: without a project the operator may write nowhere", func(ctx context.Context) {
		namespace := apiserver.Namespace(ctx)
		for _, what := range []authorizationv1.ResourceAttributes{
			{Verb: "create", Resource: "serviceaccounts"},
			{Verb: "get", Resource: "secrets"},
			{Verb: "list", Resource: "secrets"},
			{Verb: "watch", Resource: "secrets"},
			{Verb: "create", Group: rbacv1.GroupName, Resource: "roles"},
			{Verb: "escalate", Group: rbacv1.GroupName, Resource: "roles"},
			{Verb: "update", Group: rbacv1.GroupName, Resource: "roles"},
			{Verb: "create", Resource: "resourcequotas"},
			{Verb: "create", Resource: "pods/exec"},
			{Verb: "bind", Group: rbacv1.GroupName, Resource: "clusterroles", Name: "cluster-admin"},
		} {
			what.Namespace = namespace
			Expect(apiserver.May(ctx, apiserver.OperatorUser, what)).To(BeFalse(), "%+v", what)
		}
		forbidden(apiserver.As(apiserver.OperatorUser).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "greedy"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: apiserver.OperatorUser}},
		}))
	})

	It("in the operator's own hands: its role is bound nowhere but in namespaces of projects", func(ctx context.Context) {
		stolen := apiserver.As(apiserver.OperatorUser)
		subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: apiserver.OperatorUser}}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: kibashipv1.ProjectAdmin}
		Eventually(func(g Gomega) { // the API server takes a moment before it follows a policy
			err := stolen.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "greedy"}, RoleRef: ref, Subjects: subjects}, client.DryRunAll)
			g.Expect(err).To(MatchError(ContainSubstring("the operator may bind the platform")))
		}).Should(Succeed())
		kibashiptest.Ready(ctx)
	})
})
