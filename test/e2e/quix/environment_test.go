package quix

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// newEnvironment creates an Environment and removes it after the spec.
func newEnvironment(ctx context.Context, id string) *quixv1.Environment {
	GinkgoHelper()
	env := &quixv1.Environment{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-" + uuid.NewString()[:8]},
		Spec:       quixv1.EnvironmentSpec{ID: id},
	}
	Expect(world.Create(ctx, env)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(world.Delete(ctx, env.DeepCopy()))).To(Succeed())
		expect.GoneWithin(ctx, env, deployed.DeleteLimit)
	}, NodeTimeout(deployed.DeleteLimit+deployed.ReactLimit))
	return env
}

func newID() string { return "e2e-" + uuid.NewString()[:8] }

// environmentIs waits until an Environment has a phase and a condition a reason,
// and refreshes it.
func environmentIs(ctx context.Context, env *quixv1.Environment, phase quixv1.Phase, conditionType, reason string) {
	GinkgoHelper()
	expect.Refreshed(ctx, deployed.ReactLimit, env, func() error {
		c := meta.FindStatusCondition(env.Status.Conditions, conditionType)
		return deployed.ErrorIf(env.Status.Phase != phase || c == nil || c.Reason != reason,
			fmt.Sprintf("phase %s: %s; conditions %+v", env.Status.Phase, env.Status.Message, env.Status.Conditions))
	})
}

func environmentReady(ctx context.Context, env *quixv1.Environment) {
	GinkgoHelper()
	environmentIs(ctx, env, quixv1.PhaseReady, quixv1.ConditionReady, quixv1.ReasonEnvironmentReady)
}

// platform returns a client with nothing but a token of the platform's account.
func platform(ctx context.Context) client.Client {
	GinkgoHelper()
	name, err := world.Setting("SERVICE_ACCOUNT_NAME")
	Expect(err).NotTo(HaveOccurred())
	namespace, err := world.Setting("SERVICE_ACCOUNT_NAMESPACE")
	Expect(err).NotTo(HaveOccurred())
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{deployed.StageLabel: ""}}}
	Expect(world.Create(ctx, home)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(world.Delete(ctx, home)).To(Succeed())
		expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error { return world.NamespaceGone(ctx, namespace) })
	}, NodeTimeout(deployed.DeleteLimit))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	Expect(world.Create(ctx, account)).To(Succeed())
	token := &authenticationv1.TokenRequest{}
	Expect(world.SubResource("token").Create(ctx, account, token)).To(Succeed())

	config := rest.AnonymousClientConfig(world.Rest)
	config.BearerToken = token.Status.Token
	c, err := client.New(config, client.Options{Scheme: world.Scheme(), Mapper: world.RESTMapper()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("A Quix environment", func() {
	It("is the only namespace where the platform may work, while its role is harmless", Serial, func(ctx SpecContext) {
		as := platform(ctx)
		env := newEnvironment(ctx, newID())
		environmentReady(ctx, env)
		inside := env.Status.NamespaceStatus.ResourceName
		pod := func(namespace string) *corev1.Pod {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "work-", Namespace: namespace},
				Spec: corev1.PodSpec{
					Containers:                    []corev1.Container{{Name: "toolbox", Image: deployed.ToolboxImage, ImagePullPolicy: corev1.PullIfNotPresent}},
					TerminationGracePeriodSeconds: new(int64),
				},
			}
		}

		By("work inside")
		work := pod(inside)
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return as.Create(ctx, work) })
		expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) error {
			if err := as.Get(ctx, client.ObjectKeyFromObject(work), work); err != nil {
				return err
			}
			return deployed.ErrorIf(!deployed.PodReady(work), "the platform's pod is not ready")
		})

		By("attempts to get more rights")
		for _, outside := range []string{metav1.NamespaceDefault, world.Operator.Namespace} {
			Expect(apierrors.IsForbidden(as.Create(ctx, pod(outside)))).To(BeTrue(), outside)
		}
		for _, object := range []client.Object{
			&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "more", Namespace: inside},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			},
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "more", Namespace: inside}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "e2e-more"}},
		} {
			err := as.Create(ctx, object)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%T: %v", object, err)
		}

		By("a dangerous role")
		key := client.ObjectKey{Name: world.Settings["CLUSTER_ROLE_NAME"]}
		role := &rbacv1.ClusterRole{}
		Expect(world.Get(ctx, key, role)).To(Succeed())
		harmless := role.DeepCopy()
		fix := func(ctx context.Context) {
			GinkgoHelper()
			Expect(world.Get(ctx, key, role)).To(Succeed())
			role.Rules = harmless.Rules
			Expect(world.Update(ctx, role)).To(Succeed())
		}
		DeferCleanup(func(ctx SpecContext) { fix(ctx) }, NodeTimeout(deployed.ReactLimit))
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"create"}})
		edited := time.Now()
		Expect(world.Update(ctx, role)).To(Succeed())
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			err := as.Get(ctx, client.ObjectKeyFromObject(work), &corev1.Pod{})
			return deployed.ErrorIf(!apierrors.IsForbidden(err), fmt.Sprintf("the platform still may: %v", err))
		})
		AddReportEntry("time from the edit of the role until the rights were revoked", time.Since(edited).String())
		environmentIs(ctx, env, quixv1.PhaseFailed, quixv1.ConditionRoleValidated, quixv1.ReasonSecurityViolation)
		Expect(env.Status.Message).To(ContainSubstring("security violation"))

		By("the fixed role")
		fix(ctx)
		environmentReady(ctx, env)
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			return as.Get(ctx, client.ObjectKeyFromObject(work), &corev1.Pod{})
		})

		By("the deletion, with the platform's pod in the namespace")
		Expect(world.Delete(ctx, env)).To(Succeed())
		expect.GoneWithin(ctx, env, deployed.DeleteLimit)
		Expect(world.NamespaceGone(ctx, inside)).To(Succeed())
	}, SpecTimeout(deployed.SpecLimit))

	It("leaves a namespace of another owner untouched", func(ctx SpecContext) {
		id := newID()
		suffix, err := world.Setting("NAMESPACE_SUFFIX")
		Expect(err).NotTo(HaveOccurred())
		foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: id + suffix, Labels: map[string]string{deployed.StageLabel: ""}}}
		Expect(world.Create(ctx, foreign)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(world.Delete(ctx, foreign))).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
		unlucky, second := newEnvironment(ctx, id), newEnvironment(ctx, id)
		for _, env := range []*quixv1.Environment{unlucky, second} {
			environmentIs(ctx, env, quixv1.PhaseFailed, quixv1.ConditionNamespaceReady, quixv1.ReasonNamespaceNotManaged)
		}
		Expect(world.Delete(ctx, unlucky)).To(Succeed())
		expect.GoneWithin(ctx, unlucky, deployed.ReactLimit)
		now := &corev1.Namespace{}
		Expect(world.Get(ctx, client.ObjectKeyFromObject(foreign), now)).To(Succeed())
		Expect(now.ResourceVersion).To(Equal(foreign.ResourceVersion), "the namespace was changed")

		By("the deletion of the namespace: the remaining environment continues, and a third one of its ID does not")
		Expect(world.Delete(ctx, foreign)).To(Succeed())
		expect.Refreshed(ctx, deployed.DeleteLimit, second, func() error {
			return deployed.ErrorIf(second.Status.Phase != quixv1.PhaseReady, second.Status.Message)
		})
		third := newEnvironment(ctx, id)
		environmentIs(ctx, third, quixv1.PhaseFailed, quixv1.ConditionNamespaceReady, quixv1.ReasonNamespaceOwnershipConflict)
	}, SpecTimeout(deployed.SpecLimit))

	It("restores its binding and its namespace, and says what blocks its deletion", func(ctx SpecContext) {
		env := newEnvironment(ctx, newID())
		environmentReady(ctx, env)
		name := env.Status.NamespaceStatus.ResourceName
		key := client.ObjectKey{Namespace: name, Name: env.Status.RoleBindingStatus.ResourceName}
		binding := &rbacv1.RoleBinding{}
		Expect(world.Get(ctx, key, binding)).To(Succeed())
		Expect(world.Delete(ctx, binding)).To(Succeed())
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return world.Get(ctx, key, &rbacv1.RoleBinding{}) })
		Expect(world.Get(ctx, key, binding)).To(Succeed())
		binding.Subjects = nil
		Expect(world.Update(ctx, binding)).To(Succeed())
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			if err := world.Get(ctx, key, binding); err != nil {
				return err
			}
			return deployed.ErrorIf(len(binding.Subjects) != 1, "the platform is not bound")
		})
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		Expect(world.Delete(ctx, namespace)).To(Succeed())
		expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error {
			now := &corev1.Namespace{}
			if err := world.Get(ctx, client.ObjectKeyFromObject(namespace), now); err != nil {
				return err
			}
			return deployed.ErrorIf(now.UID == namespace.UID || now.DeletionTimestamp != nil, "it is still the deleted one")
		})
		environmentReady(ctx, env)

		hold := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "hold", Finalizers: []string{"example.com/hold"}}}
		Expect(world.Create(ctx, hold)).To(Succeed())
		lift := func(ctx context.Context) error {
			return client.IgnoreNotFound(world.Patch(ctx, hold, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
		}
		DeferCleanup(func(ctx SpecContext) { Expect(lift(ctx)).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
		Expect(world.Delete(ctx, env)).To(Succeed())
		environmentIs(ctx, env, quixv1.PhaseDeleting, quixv1.ConditionNamespaceReady, quixv1.ReasonDeletionBlocked)
		Expect(env.Status.Message).To(ContainSubstring("example.com/hold"))
		Expect(lift(ctx)).To(Succeed())
		expect.GoneWithin(ctx, env, deployed.DeleteLimit)
		Expect(world.NamespaceGone(ctx, name)).To(Succeed())
	}, SpecTimeout(deployed.SpecLimit))
})
