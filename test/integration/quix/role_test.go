package quix

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

const (
	platformRole = "quix-platform-account-role"
	platformUser = "system:serviceaccount:quix-environment:quix-platform-account"
)

// listPods is a right that the platform's role grants.
func listPods(namespace string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: namespace}
}

// editRole changes the platform's ClusterRole until the end of the spec.
func editRole(ctx context.Context, modify func(*rbacv1.ClusterRole)) (fix func()) {
	GinkgoHelper()
	role := apiserver.Get[rbacv1.ClusterRole](ctx, client.ObjectKey{Name: platformRole})
	before := role.DeepCopy()
	modify(role)
	Expect(k8s.Patch(ctx, role, client.MergeFrom(before))).To(Succeed())
	return func() {
		GinkgoHelper()
		ctx := context.Background()
		now := &rbacv1.ClusterRole{}
		err := k8s.Get(ctx, client.ObjectKeyFromObject(before), now)
		if apierrors.IsNotFound(err) {
			again := before.DeepCopy()
			again.ResourceVersion, again.UID = "", ""
			Expect(k8s.Create(ctx, again)).To(Succeed())
			return
		}
		Expect(err).NotTo(HaveOccurred())
		now.Labels, now.Rules = before.Labels, before.Rules
		Expect(k8s.Update(ctx, now)).To(Succeed())
	}
}

func addRule(rule rbacv1.PolicyRule) func(*rbacv1.ClusterRole) {
	return func(role *rbacv1.ClusterRole) { role.Rules = append(role.Rules, rule) }
}

var escalation = rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"create"}}

var _ = Describe("The platform's ClusterRole", func() {
	It("loses its bindings immediately when it becomes dangerous, and gets them back when it is fixed", func(ctx context.Context) {
		environments := make([]*quixv1.Environment, 3)
		for n := range environments {
			environments[n] = quixtest.Environment(ctx, quixtest.NewID())
			expect.Settles(ctx, environments[n], quixv1.PhaseReady)
			Expect(apiserver.May(ctx, platformUser, listPods(environments[n].Spec.ID+"-qdep"))).To(BeTrue())
		}
		fix := editRole(ctx, addRule(escalation))
		defer fix()
		edited := time.Now()
		for _, env := range environments {
			Eventually(func() bool {
				return apierrors.IsNotFound(k8s.Get(ctx, bindingKey(env), &rbacv1.RoleBinding{}))
			}).WithPolling(5 * time.Millisecond).Should(BeTrue())
		}
		AddReportEntry("bindings gone after the edit of the role", time.Since(edited).String())
		for _, env := range environments {
			expect.Settles(ctx, env, quixv1.PhaseFailed)
			expect.Shows(ctx, env, quixv1.ConditionRoleValidated, metav1.ConditionFalse, quixv1.ReasonSecurityViolation)
			Expect(env.Status.Message).To(And(ContainSubstring("security violation"), ContainSubstring("ClusterRole "+platformRole)))
			Expect(env.Status.NamespaceStatus.Phase).To(Equal(quixv1.ResourceActive))
			Expect(env.Status.RoleBindingStatus.Phase).To(Equal(quixv1.ResourceFailed))
			Eventually(apiserver.May).WithContext(ctx).WithArguments(platformUser, listPods(env.Spec.ID+"-qdep")).Should(BeFalse())
			Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ContainElement("Warning/SecurityViolation"))
		}

		By("binding it in a new environment")
		fresh := quixtest.Environment(ctx, quixtest.NewID())
		expect.Settles(ctx, fresh, quixv1.PhaseFailed)
		Expect(environmentNamespace(ctx, fresh).Labels).To(HaveKey("quix.io/managed-by"))
		Expect(apierrors.IsNotFound(k8s.Get(ctx, bindingKey(fresh), &rbacv1.RoleBinding{}))).To(BeTrue())

		By("being deleted while it is dangerous")
		Expect(k8s.Delete(ctx, environments[2])).To(Succeed())
		expect.Gone(ctx, environments[2])

		By("fixing it")
		fix()
		for _, env := range []*quixv1.Environment{environments[0], environments[1], fresh} {
			expect.Settles(ctx, env, quixv1.PhaseReady)
			Eventually(apiserver.May).WithContext(ctx).WithArguments(platformUser, listPods(env.Spec.ID+"-qdep")).Should(BeTrue())
		}
	})

	It("keeps its bindings under the policy Report, but gets no new one", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		inprocess.Pause()
		binding := environmentBinding(ctx, env)
		fix := editRole(ctx, func(role *rbacv1.ClusterRole) {
			role.Labels = map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}
		})
		defer fix()
		inprocess.Restart(map[string]string{"ROLE_VIOLATION_POLICY": "Report"}, nil)
		expect.Settles(ctx, env, quixv1.PhaseFailed)
		expect.Shows(ctx, env, quixv1.ConditionRoleValidated, metav1.ConditionFalse, quixv1.ReasonSecurityViolation)
		expect.Shows(ctx, env, quixv1.ConditionRoleBindingReady, metav1.ConditionTrue, quixv1.ReasonCreated)
		leftAlone(ctx, binding)
		fresh := quixtest.Environment(ctx, quixtest.NewID())
		expect.Settles(ctx, fresh, quixv1.PhaseFailed)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, bindingKey(fresh), &rbacv1.RoleBinding{}))).To(BeTrue())
		fix()
		expect.Settles(ctx, env, quixv1.PhaseReady)
		expect.Settles(ctx, fresh, quixv1.PhaseReady)
	})

	It("may be missing at the start: environments say so, and continue when it is created", func(ctx context.Context) {
		live := quixtest.Ready(ctx)
		inprocess.Pause()
		fix := editRole(ctx, func(*rbacv1.ClusterRole) {})
		defer fix()
		Expect(k8s.Delete(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: platformRole}})).To(Succeed())
		inprocess.Instead(clock.RealClock{}, nil, nil)
		env := quixtest.Environment(ctx, quixtest.NewID())
		for _, e := range []*quixv1.Environment{env, live} {
			expect.Settles(ctx, e, quixv1.PhaseFailed)
			expect.Shows(ctx, e, quixv1.ConditionRoleValidated, metav1.ConditionFalse, quixv1.ReasonRoleMissing)
			Expect(e.Status.Message).To(And(ContainSubstring("cannot get ClusterRole "+platformRole), ContainSubstring("role binding")))
			Expect(e.Status.NamespaceStatus.Phase).To(Equal(quixv1.ResourceActive))
		}
		fix()
		expect.Settles(ctx, env, quixv1.PhaseReady)
		expect.Settles(ctx, live, quixv1.PhaseReady)

		By("an old role that is bound while its successor is missing")
		inprocess.Pause()
		inprocess.Restart(map[string]string{"CLUSTER_ROLE_NAME": "missing-" + quixtest.NewID()}, nil)
		expect.Shows(ctx, live, quixv1.ConditionRoleValidated, metav1.ConditionFalse, quixv1.ReasonRoleMissing)
		Eventually(func() bool {
			return apierrors.IsNotFound(k8s.Get(ctx, bindingKey(live), &rbacv1.RoleBinding{}))
		}).Should(BeTrue(), "the operator no longer watches that role")
	})

	It("cannot be bound under another name without the right to bind that one", func(ctx context.Context) {
		inprocess.Pause()
		role := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "integration-" + quixtest.NewID()},
			// A right that the operator does not have: it could grant its own rights.
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create"}}},
		}
		apiserver.Create(ctx, role)
		inprocess.Restart(map[string]string{"CLUSTER_ROLE_NAME": role.Name}, nil)
		env := quixtest.Environment(ctx, quixtest.NewID())
		expect.Settles(ctx, env, quixv1.PhaseFailed)
		expect.Shows(ctx, env, quixv1.ConditionRoleBindingReady, metav1.ConditionFalse, quixv1.ReasonRoleBindingCreationFailed)
		Expect(env.Status.Message).To(ContainSubstring("attempting to grant RBAC permissions not currently held"))

		By("granting that right")
		right := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name + "-bind"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{role.Name}, Verbs: []string{"bind"}}},
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: right.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: right.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: installed.Namespace, Name: installed.Account}},
		}
		for _, object := range []client.Object{right, binding} {
			apiserver.Create(ctx, object)
		}
		expect.Settles(ctx, env, quixv1.PhaseReady)
		Expect(environmentBinding(ctx, env).RoleRef.Name).To(Equal(role.Name))
		before := environmentBinding(ctx, env).UID

		By("going back to the first role, which needs a new binding")
		inprocess.Pause()()
		Eventually(func(g Gomega) {
			now := &rbacv1.RoleBinding{}
			g.Expect(k8s.Get(ctx, bindingKey(env), now)).To(Succeed())
			g.Expect(now.RoleRef.Name).To(Equal(platformRole))
			g.Expect(now.UID).NotTo(Equal(before))
		}).Should(Succeed())
	})
})

var _ = Describe("Rights", func() {
	It("of the platform are limited to its environments, and the operator has none of them", func(ctx context.Context) {
		env := quixtest.Ready(ctx)
		inside := env.Spec.ID + "-qdep"
		role := apiserver.Get[rbacv1.ClusterRole](ctx, client.ObjectKey{Name: platformRole})
		Eventually(apiserver.May).WithContext(ctx).WithArguments(platformUser, listPods(inside)).Should(BeTrue())
		// The only cluster-wide right, which the platform's manifests grant.
		grant := &rbacv1.ClusterRoleBinding{}
		text, err := os.ReadFile("../../../config/quix/samples/prerequisites/cluster_role_binding.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(yaml.UnmarshalStrict(text, grant)).To(Succeed())
		apiserver.Create(ctx, grant)
		Eventually(apiserver.May).WithContext(ctx).WithArguments(platformUser, authorizationv1.ResourceAttributes{
			Group: "quix.io", Resource: "environments", Verb: "create",
		}).Should(BeTrue())

		// Rights of the controllers of challenge instances.
		own := []string{
			"/services", "/configmaps", "apps/deployments", "networking.k8s.io/networkpolicies", // all but patch
			"/pods get", "/pods list", "/pods watch", "/pods delete", "/secrets create",
			// Rights of the controller of KibaShip projects.
			"/serviceaccounts list", "/serviceaccounts watch",
		}
		var held []string
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						parent, sub, _ := strings.Cut(resource, "/")
						what := authorizationv1.ResourceAttributes{Group: group, Resource: parent, Subresource: sub, Verb: verb, Namespace: inside}
						name := fmt.Sprintf("%s/%s %s", group, resource, verb)
						Expect(apiserver.May(ctx, platformUser, what)).To(BeTrue(), "the platform may not: %s", name)
						for _, outside := range []string{"default", "kube-system", ""} {
							what.Namespace = outside
							Expect(apiserver.May(ctx, platformUser, what)).To(BeFalse(), "the platform may in %q: %s", outside, name)
						}
						what.Namespace = inside
						if apiserver.May(ctx, apiserver.OperatorUser, what) && !slices.Contains(own, name) && !slices.Contains(own, strings.Fields(name)[0]) {
							held = append(held, name)
						}
					}
				}
			}
		}
		Expect(held).To(BeEmpty(), "the operator has rights that it grants")

		for _, tc := range []struct {
			user    string
			what    authorizationv1.ResourceAttributes
			allowed bool
		}{
			{apiserver.OperatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: platformRole, Verb: "bind"}, true},
			{apiserver.OperatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: "cluster-admin", Verb: "bind"}, false},
			{apiserver.OperatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Verb: "bind"}, false},
			{apiserver.OperatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: platformRole, Verb: "update"}, false},
			{apiserver.OperatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: platformRole, Verb: "escalate"}, false},
			{apiserver.OperatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "roles", Namespace: inside, Verb: "create"}, false},
			{apiserver.OperatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterrolebindings", Verb: "create"}, false},
			{apiserver.OperatorUser, authorizationv1.ResourceAttributes{Group: "quix.io", Resource: "environments", Verb: "create"}, false},
			{apiserver.OperatorUser, authorizationv1.ResourceAttributes{Group: "quix.io", Resource: "environments", Verb: "delete"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Group: "quix.io", Resource: "environments", Verb: "delete"}, true},
			{platformUser, authorizationv1.ResourceAttributes{Group: "quix.io", Resource: "environments", Subresource: "status", Verb: "patch"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "rolebindings", Namespace: inside, Verb: "create"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "roles", Namespace: inside, Verb: "create"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Resource: "serviceaccounts", Subresource: "token", Namespace: inside, Verb: "create"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Resource: "namespaces", Name: inside, Verb: "update"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Resource: "namespaces", Verb: "create"}, false},
		} {
			Expect(apiserver.May(ctx, tc.user, tc.what)).To(Equal(tc.allowed), "%s: %+v", tc.user, tc.what)
		}
	})
})
