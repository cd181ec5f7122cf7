package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

const (
	platformRole = "quix-platform-account-role"
	platformUser = "system:serviceaccount:quix-environment:quix-platform-account"
)

// listPods is a right that the platform's role hands out.
func listPods(namespace string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: namespace}
}

// editRole changes the platform's ClusterRole for the length of a spec.
func editRole(ctx context.Context, modify func(*rbacv1.ClusterRole)) (mend func()) {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: platformRole}, role)).To(Succeed())
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
	It("takes the platform's rights away at once when it becomes dangerous, and gives them back when it is mended", func(ctx context.Context) {
		environments := make([]*quixv1.Environment, 3)
		for n := range environments {
			environments[n] = newEnvironment(ctx, newID())
			environmentReaches(ctx, environments[n], quixv1.PhaseReady)
			Expect(may(ctx, platformUser, listPods(environments[n].Spec.ID+"-qdep"))).To(BeTrue())
		}
		mend := editRole(ctx, addRule(escalation))
		defer mend()
		edited := time.Now()
		for _, env := range environments {
			Eventually(func() bool {
				return apierrors.IsNotFound(k8s.Get(ctx, bindingKey(env), &rbacv1.RoleBinding{}))
			}).WithPolling(5 * time.Millisecond).Should(BeTrue())
		}
		AddReportEntry("bindings gone after the edit of the role", time.Since(edited).String())
		for _, env := range environments {
			environmentReaches(ctx, env, quixv1.PhaseFailed)
			environmentShows(ctx, env, quixv1.ConditionRoleValidated, metav1.ConditionFalse, quixv1.ReasonSecurityViolation)
			Expect(env.Status.Message).To(And(ContainSubstring("security violation"), ContainSubstring("ClusterRole "+platformRole)))
			Expect(env.Status.NamespaceStatus.Phase).To(Equal(quixv1.ResourceActive))
			Expect(env.Status.RoleBindingStatus.Phase).To(Equal(quixv1.ResourceFailed))
			Eventually(may).WithContext(ctx).WithArguments(platformUser, listPods(env.Spec.ID+"-qdep")).Should(BeFalse())
			Eventually(environmentEvents).WithContext(ctx).WithArguments(env).Should(ContainElement("Warning/SecurityViolation"))
		}

		By("binding it in a new environment")
		fresh := newEnvironment(ctx, newID())
		environmentReaches(ctx, fresh, quixv1.PhaseFailed)
		Expect(environmentNamespace(ctx, fresh).Labels).To(HaveKey("quix.io/managed-by"))
		Expect(apierrors.IsNotFound(k8s.Get(ctx, bindingKey(fresh), &rbacv1.RoleBinding{}))).To(BeTrue())

		By("being deleted while it is dangerous")
		Expect(k8s.Delete(ctx, environments[2])).To(Succeed())
		environmentGone(ctx, environments[2])

		By("mending it")
		mend()
		for _, env := range []*quixv1.Environment{environments[0], environments[1], fresh} {
			environmentReaches(ctx, env, quixv1.PhaseReady)
			Eventually(may).WithContext(ctx).WithArguments(platformUser, listPods(env.Spec.ID+"-qdep")).Should(BeTrue())
		}
	})

	It("is only reported when the policy says so, and never bound anew", func(ctx context.Context) {
		env := newEnvironment(ctx, newID())
		environmentReaches(ctx, env, quixv1.PhaseReady)
		stopOperator()
		defer func() {
			stopOperator()
			stopOperator = start(cfg, nil)
		}()
		binding := environmentBinding(ctx, env)
		mend := editRole(ctx, func(role *rbacv1.ClusterRole) {
			role.Labels = map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}
		})
		defer mend()
		changed := cfg
		changed.Environment.RoleViolationPolicy = config.RoleViolationReport
		stopOperator = start(changed, nil)
		environmentReaches(ctx, env, quixv1.PhaseFailed)
		environmentShows(ctx, env, quixv1.ConditionRoleValidated, metav1.ConditionFalse, quixv1.ReasonSecurityViolation)
		environmentShows(ctx, env, quixv1.ConditionRoleBindingReady, metav1.ConditionTrue, quixv1.ReasonCreated)
		leftAlone(ctx, binding)
		fresh := newEnvironment(ctx, newID())
		environmentReaches(ctx, fresh, quixv1.PhaseFailed)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, bindingKey(fresh), &rbacv1.RoleBinding{}))).To(BeTrue())
		mend()
		environmentReaches(ctx, env, quixv1.PhaseReady)
		environmentReaches(ctx, fresh, quixv1.PhaseReady)
	})

	It("may be missing at the start: environments say so, and go on when it is there", func(ctx context.Context) {
		live := newEnvironment(ctx, newID())
		environmentReaches(ctx, live, quixv1.PhaseReady)
		stopOperator()
		defer func() {
			stopOperator()
			stopOperator = start(cfg, nil)
		}()
		mend := editRole(ctx, func(*rbacv1.ClusterRole) {})
		defer mend()
		Expect(k8s.Delete(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: platformRole}})).To(Succeed())
		stopOperator = start(cfg, nil)
		env := newEnvironment(ctx, newID())
		for _, e := range []*quixv1.Environment{env, live} {
			environmentReaches(ctx, e, quixv1.PhaseFailed)
			environmentShows(ctx, e, quixv1.ConditionRoleValidated, metav1.ConditionFalse, quixv1.ReasonRoleMissing)
			Expect(e.Status.Message).To(And(ContainSubstring("cannot get ClusterRole "+platformRole), ContainSubstring("role binding")))
			Expect(e.Status.NamespaceStatus.Phase).To(Equal(quixv1.ResourceActive))
		}
		mend()
		environmentReaches(ctx, env, quixv1.PhaseReady)
		environmentReaches(ctx, live, quixv1.PhaseReady)

		By("being bound to one that is no longer the platform's, while its successor is missing")
		stopOperator()
		changed := cfg
		changed.Environment.ClusterRoleName = "missing-" + newID()
		stopOperator = start(changed, nil)
		environmentShows(ctx, live, quixv1.ConditionRoleValidated, metav1.ConditionFalse, quixv1.ReasonRoleMissing)
		Eventually(func() bool {
			return apierrors.IsNotFound(k8s.Get(ctx, bindingKey(live), &rbacv1.RoleBinding{}))
		}).Should(BeTrue(), "nobody would notice were that role made dangerous")
	})

	It("cannot be bound under another name without the right to bind that one", func(ctx context.Context) {
		stopOperator()
		defer func() {
			stopOperator()
			stopOperator = start(cfg, nil)
		}()
		changed := cfg
		changed.Environment.ClusterRoleName = "integration-" + newID()
		role := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: changed.Environment.ClusterRoleName},
			// Nothing that the operator holds itself: it could hand that out.
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create"}}},
		}
		Expect(k8s.Create(ctx, role)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(k8s.Delete(ctx, role)).To(Succeed()) })
		stopOperator = start(changed, nil)
		env := newEnvironment(ctx, newID())
		environmentReaches(ctx, env, quixv1.PhaseFailed)
		environmentShows(ctx, env, quixv1.ConditionRoleBindingReady, metav1.ConditionFalse, quixv1.ReasonRoleBindingCreationFailed)
		Expect(env.Status.Message).To(ContainSubstring("attempting to grant RBAC permissions not currently held"))

		By("giving it that right")
		right := &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name + "-bind"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{role.Name}, Verbs: []string{"bind"}}},
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: right.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: right.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: operatorNamespace, Name: operatorAccount}},
		}
		for _, object := range []client.Object{right, binding} {
			Expect(k8s.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx context.Context) { Expect(k8s.Delete(ctx, object)).To(Succeed()) })
		}
		environmentReaches(ctx, env, quixv1.PhaseReady)
		Expect(environmentBinding(ctx, env).RoleRef.Name).To(Equal(role.Name))
		before := environmentBinding(ctx, env).UID

		By("going back to the first role, which takes a new binding")
		stopOperator()
		stopOperator = start(cfg, nil)
		Eventually(func(g Gomega) {
			now := &rbacv1.RoleBinding{}
			g.Expect(k8s.Get(ctx, bindingKey(env), now)).To(Succeed())
			g.Expect(now.RoleRef.Name).To(Equal(platformRole))
			g.Expect(now.UID).NotTo(Equal(before))
		}).Should(Succeed())
	})
})

var _ = Describe("Rights", func() {
	It("of the platform end at the environment, and the operator has none of them", func(ctx context.Context) {
		env := newEnvironment(ctx, newID())
		environmentReaches(ctx, env, quixv1.PhaseReady)
		inside := env.Spec.ID + "-qdep"
		role := &rbacv1.ClusterRole{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: platformRole}, role)).To(Succeed())
		Eventually(may).WithContext(ctx).WithArguments(platformUser, listPods(inside)).Should(BeTrue())
		// The one grant in the whole cluster, which the platform brings.
		grant := &rbacv1.ClusterRoleBinding{}
		text, err := os.ReadFile("../../config/quix/samples/prerequisites/cluster_role_binding.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(yaml.UnmarshalStrict(text, grant)).To(Succeed())
		Expect(k8s.Create(ctx, grant)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(k8s.Delete(ctx, grant)).To(Succeed()) })
		Eventually(may).WithContext(ctx).WithArguments(platformUser, authorizationv1.ResourceAttributes{
			Group: "quix.io", Resource: "environments", Verb: "create",
		}).Should(BeTrue())

		// What the controllers of challenge instances need for themselves.
		own := []string{
			"/services", "/configmaps", "apps/deployments", "networking.k8s.io/networkpolicies", // all but patch
			"/pods get", "/pods list", "/pods watch", "/secrets create",
		}
		var held []string
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						parent, sub, _ := strings.Cut(resource, "/")
						what := authorizationv1.ResourceAttributes{Group: group, Resource: parent, Subresource: sub, Verb: verb, Namespace: inside}
						name := fmt.Sprintf("%s/%s %s", group, resource, verb)
						Expect(may(ctx, platformUser, what)).To(BeTrue(), "the platform may not: %s", name)
						for _, outside := range []string{"default", "kube-system", ""} {
							what.Namespace = outside
							Expect(may(ctx, platformUser, what)).To(BeFalse(), "the platform may in %q: %s", outside, name)
						}
						what.Namespace = inside
						if may(ctx, operatorUser, what) && !slices.Contains(own, name) && !slices.Contains(own, strings.Fields(name)[0]) {
							held = append(held, name)
						}
					}
				}
			}
		}
		Expect(held).To(BeEmpty(), "the operator holds what it hands out")

		for _, tc := range []struct {
			user    string
			what    authorizationv1.ResourceAttributes
			allowed bool
		}{
			{operatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: platformRole, Verb: "bind"}, true},
			{operatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: "cluster-admin", Verb: "bind"}, false},
			{operatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Verb: "bind"}, false},
			{operatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: platformRole, Verb: "update"}, false},
			{operatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: platformRole, Verb: "escalate"}, false},
			{operatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "roles", Namespace: inside, Verb: "create"}, false},
			{operatorUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterrolebindings", Verb: "create"}, false},
			{operatorUser, authorizationv1.ResourceAttributes{Group: "quix.io", Resource: "environments", Verb: "create"}, false},
			{operatorUser, authorizationv1.ResourceAttributes{Group: "quix.io", Resource: "environments", Verb: "delete"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Group: "quix.io", Resource: "environments", Verb: "delete"}, true},
			{platformUser, authorizationv1.ResourceAttributes{Group: "quix.io", Resource: "environments", Subresource: "status", Verb: "patch"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "rolebindings", Namespace: inside, Verb: "create"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "roles", Namespace: inside, Verb: "create"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Resource: "serviceaccounts", Subresource: "token", Namespace: inside, Verb: "create"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Resource: "namespaces", Name: inside, Verb: "update"}, false},
			{platformUser, authorizationv1.ResourceAttributes{Resource: "namespaces", Verb: "create"}, false},
		} {
			Expect(may(ctx, tc.user, tc.what)).To(Equal(tc.allowed), "%s: %+v", tc.user, tc.what)
		}
	})
})

var _ = Describe("An API that is not enabled", func() {
	DescribeTable("costs no request, and the other works", func(ctx context.Context, enabled string, never ...string) {
		stopOperator()
		defer func() {
			stopOperator()
			stopOperator = start(cfg, nil)
		}()
		var asked atomic.Pointer[string]
		stopOperator = start(load(map[string]string{"POD_NAMESPACE": operatorNamespace, "ENABLED_APIS": enabled}), showing(func(r *http.Request) {
			for _, part := range never {
				// Discovery asks for the list of an API, nobody for its objects.
				if strings.Contains(r.URL.Path, part) {
					asked.Store(&r.URL.Path)
				}
			}
		}))
		if enabled == quixv1.GroupVersion.Group {
			env := newEnvironment(ctx, newID())
			environmentReaches(ctx, env, quixv1.PhaseReady)
		} else {
			ns := newNamespace(ctx)
			challenge(ctx, ns, "alone", oneContainer)
			i := instance(ctx, ns, "alone")
			reaches(ctx, i, "Running")
			Expect(k8s.Delete(ctx, i)).To(Succeed())
			gone(ctx, i)
		}
		if path := asked.Load(); path != nil {
			Fail("it asked for " + *path)
		}
	},
		Entry("without Quix", bergv1.GroupVersion.Group, "/environments", "/rolebindings", "/clusterroles"),
		Entry("without Berg", quixv1.GroupVersion.Group, "/challenges", "/challengeinstances", "/pods", "/deployments", "/services", "/customresourcedefinitions"),
	)
})
