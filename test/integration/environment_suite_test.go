package integration

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

// newID returns an ID that no other spec uses.
func newID() string { return "it-" + uuid.NewString()[:8] }

// newEnvironment creates an Environment. At the end of the spec it is deleted; the
// suite ends by waiting until all of them are gone.
func newEnvironment(ctx context.Context, id string, modify ...func(*quixv1.Environment)) *quixv1.Environment {
	GinkgoHelper()
	env := &quixv1.Environment{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "integration-"},
		Spec:       quixv1.EnvironmentSpec{ID: id},
	}
	for _, m := range modify {
		m(env)
	}
	Expect(k8s.Create(ctx, env)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, env.DeepCopy()))).To(Succeed())
	})
	return env
}

// environmentReaches waits until an Environment has a phase, and refreshes it.
func environmentReaches(ctx context.Context, env *quixv1.Environment, phase quixv1.Phase) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(env), env)).To(Succeed())
		g.Expect(env.Status.Phase).To(Equal(phase), "%s; %s", env.Status.Message, environmentConditions(env))
		g.Expect(env.Status.ObservedGeneration).To(Equal(env.Generation))
	}).Should(Succeed())
}

// environmentShows waits until a condition has a status and a reason.
func environmentShows(ctx context.Context, env *quixv1.Environment, conditionType string, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(env), env)).To(Succeed())
		c := meta.FindStatusCondition(env.Status.Conditions, conditionType)
		g.Expect(c).NotTo(BeNil())
		g.Expect(fmt.Sprint(c.Status, "/", c.Reason)).To(Equal(fmt.Sprint(status, "/", reason)), environmentConditions(env))
	}).Should(Succeed())
}

func environmentConditions(env *quixv1.Environment) string {
	var b strings.Builder
	for _, c := range env.Status.Conditions {
		fmt.Fprintf(&b, "%s=%s/%s (%s); ", c.Type, c.Status, c.Reason, c.Message)
	}
	return b.String()
}

func environmentGone(ctx context.Context, env *quixv1.Environment) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		left := &quixv1.Environment{}
		err := k8s.Get(ctx, client.ObjectKeyFromObject(env), left)
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "it exists: %s; %s", left.Status.Message, environmentConditions(left))
	}).Should(Succeed())
}

func environmentUpdated(ctx context.Context, env *quixv1.Environment, modify func()) {
	GinkgoHelper()
	before := env.DeepCopy()
	modify()
	Expect(k8s.Patch(ctx, env, client.MergeFrom(before))).To(Succeed())
}

// environmentNamespace returns the namespace that bears an Environment's name.
func environmentNamespace(ctx context.Context, env *quixv1.Environment) *corev1.Namespace {
	GinkgoHelper()
	ns := &corev1.Namespace{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: env.Spec.ID + "-qdep"}, ns)).To(Succeed())
	return ns
}

func bindingKey(env *quixv1.Environment) client.ObjectKey {
	return client.ObjectKey{Namespace: env.Spec.ID + "-qdep", Name: env.Spec.ID + "-quix-crb"}
}

func environmentBinding(ctx context.Context, env *quixv1.Environment) *rbacv1.RoleBinding {
	GinkgoHelper()
	binding := &rbacv1.RoleBinding{}
	Expect(k8s.Get(ctx, bindingKey(env), binding)).To(Succeed())
	return binding
}

// environmentEvents returns the events about an Environment, each <type>/<reason>,
// as often as it was told.
func environmentEvents(ctx context.Context, env *quixv1.Environment) []string {
	GinkgoHelper()
	var events corev1.EventList
	Expect(k8s.List(ctx, &events, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
	var told []string
	for _, e := range events.Items {
		if e.InvolvedObject.Kind != "Environment" || e.InvolvedObject.UID != env.UID {
			continue
		}
		Expect(e.ReportingController).To(Equal("environment-controller"))
		times := int32(1)
		if e.Series != nil {
			times = e.Series.Count
		}
		for range times {
			told = append(told, e.Type+"/"+e.Reason)
		}
	}
	return told
}

// foreignNamespace creates a namespace that is none of the operator's.
func foreignNamespace(ctx context.Context, name string, labels map[string]string) *corev1.Namespace {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	Expect(k8s.Create(ctx, ns)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, ns))).To(Succeed()) })
	return ns
}

// leftAlone fails when an object has changed, or is being deleted.
func leftAlone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	now := object.DeepCopyObject().(client.Object)
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), now)).To(Succeed())
	Expect(now.GetResourceVersion()).To(Equal(object.GetResourceVersion()), "%s was touched", object.GetName())
}
