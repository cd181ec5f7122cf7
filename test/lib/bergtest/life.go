package bergtest

import (
	"context"
	"net/http"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// StartRunning makes a Challenge of this name in a namespace of its own, and an instance of it that runs.
func StartRunning(ctx context.Context, name, spec string, modify ...func(*bergv1.ChallengeInstance)) *bergv1.ChallengeInstance {
	GinkgoHelper()
	return Running(ctx, Publish(ctx, name, spec), name, modify...)
}

// Running creates an instance of a Challenge, and waits until it runs.
func Running(ctx context.Context, namespace, challenge string, modify ...func(*bergv1.ChallengeInstance)) *bergv1.ChallengeInstance {
	GinkgoHelper()
	i := Instance(ctx, namespace, challenge, modify...)
	expect.Reaches(ctx, i, bergv1.PhaseRunning)
	return i
}

// AllRun waits until all instances run.
func AllRun(ctx context.Context, instances ...*bergv1.ChallengeInstance) {
	GinkgoHelper()
	for _, i := range instances {
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
	}
}

// AllGone waits until neither the instances nor their namespaces exist.
func AllGone(ctx context.Context, instances ...*bergv1.ChallengeInstance) {
	GinkgoHelper()
	for _, i := range instances {
		Gone(ctx, i)
	}
}

// RequestsOfALife restarts the operator with settings, lets an instance run and end, and returns how many requests were
// of a kind.
func RequestsOfALife(ctx context.Context, env map[string]string, isCounted func(*http.Request) bool) int64 {
	GinkgoHelper()
	var counted atomic.Int64
	inprocess.Restart(env, transport.Showing(func(r *http.Request) {
		if isCounted(r) {
			counted.Add(1)
		}
	}))
	i := StartRunning(ctx, "web", OneContainer)
	Expect(apiserver.Client.Delete(ctx, i)).To(Succeed())
	Gone(ctx, i)
	return counted.Load()
}

// Respecify replaces the spec of a Challenge.
func Respecify(ctx context.Context, c *bergv1.Challenge, spec string) {
	GinkgoHelper()
	Eventually(func() error { // the operator writes the status
		if err := apiserver.Client.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		c.Spec = bergv1.ChallengeSpec{}
		Parse(spec, &c.Spec)
		return apiserver.Client.Update(ctx, c)
	}).Should(Succeed())
}

// RollOut asks for the adoption of the Challenge as it is.
func RollOut(ctx context.Context, i *bergv1.ChallengeInstance, value string) {
	GinkgoHelper()
	Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
	apiserver.Change(ctx, i, func() { metav1.SetMetaDataAnnotation(&i.ObjectMeta, bergv1.AnnotationRollout, value) })
}

// WithTimeout gives an instance a timeout.
func WithTimeout(d string) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) { i.Spec.Timeout = d }
}

// Behave lets the pods of an instance behave as a simulated node can.
func Behave(ctx context.Context, i *bergv1.ChallengeInstance, how string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(apiserver.Client.List(ctx, &list, client.InNamespace(i.Status.Namespace))).To(Succeed())
		g.Expect(list.Items).NotTo(BeEmpty())
		for _, p := range list.Items {
			before := p.DeepCopy()
			p.Labels["berg.test/behaviour"] = how
			g.Expect(apiserver.Client.Patch(ctx, &p, client.MergeFrom(before))).To(Succeed())
		}
	}).Should(Succeed())
}

// OwnedLike gives an instance the owner of another.
func OwnedLike(of *bergv1.ChallengeInstance) func(*bergv1.ChallengeInstance) {
	return func(i *bergv1.ChallengeInstance) { i.Spec.OwnerID = of.Spec.OwnerID }
}

// ExpectWaitingForOwner returns when an instance waits for another of its owner.
func ExpectWaitingForOwner(ctx context.Context, i *bergv1.ChallengeInstance) {
	GinkgoHelper()
	expect.Shows(ctx, i, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonOwnerBusy)
	Expect(i.Status.Phase).To(Equal(bergv1.PhasePending))
	Expect(i.Status.StartedAt).To(BeNil(), "its time runs while it waits")
}
