package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

// What administrators do before a maintenance: an admission policy refuses what the
// operator wants to write of the instances themselves.
var _ = Describe("A freeze of instances", Serial, func() {
	const updates, statuses = "challengeinstances", "challengeinstances/status"
	later := func() clock.PassiveClock { return clocktesting.NewFakePassiveClock(time.Now().Add(3 * time.Hour)) }

	DescribeTable("keeps none whose time is over, and its end is told and counted once",
		func(ctx context.Context, frozen ...string) {
			ns := newNamespace(ctx)
			challenge(ctx, ns, "frozen", oneContainer)
			i := instance(ctx, ns, "frozen")
			reaches(ctx, i, bergv1.PhaseRunning)
			before := metric("berg_challengeinstance_timeouts_total")
			pause()
			lift := freeze(ctx, ns, "UPDATE", frozen...)
			instead(later(), cfg, nil)
			Eventually(func() bool { return namespaceExists(ctx, i) }).Should(BeFalse(), "its pods run on")
			saysWhy(ctx, i, "Terminating due to Timeout")
			Eventually(func() float64 { return metric("berg_challengeinstance_timeouts_total") - before }).Should(BeEquivalentTo(1))

			lift()
			gone(ctx, i)
			Expect(metric("berg_challengeinstance_timeouts_total")-before).To(BeEquivalentTo(1), "it was counted again")
		},
		Entry("of the resource", updates),
		Entry("of the status", statuses),
		Entry("of both", updates, statuses),
	)

	It("of the status keeps no instance that is gone", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "kept", oneContainer)
		i := instance(ctx, ns, "kept")
		reaches(ctx, i, bergv1.PhaseRunning)
		freeze(ctx, ns, "UPDATE", statuses)
		Expect(k8s.Delete(ctx, i)).To(Succeed())
		gone(ctx, i)
		saysWhy(ctx, i, "Terminating due to UserRequest")
	})

	It("keeps none whose Challenge is withdrawn", func(ctx context.Context) {
		ns := newNamespace(ctx)
		c := challenge(ctx, ns, "withdrawn", oneContainer)
		i := instance(ctx, ns, "withdrawn")
		reaches(ctx, i, bergv1.PhaseRunning)
		pause()
		lift := freeze(ctx, ns, "UPDATE", updates, statuses)
		Expect(k8s.Delete(ctx, c)).To(Succeed())
		strict := cfg
		strict.Challenge.WithdrawalPolicy = config.WithdrawalStop
		instead(clock.RealClock{}, strict, nil)
		Eventually(func() bool { return namespaceExists(ctx, i) }).Should(BeFalse(), "its pods run on")
		saysWhy(ctx, i, "Terminating due to AdminTermination")
		lift()
		gone(ctx, i)
	})

	It("lets an extension at the last moment win", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "moment", oneContainer)
		i := instance(ctx, ns, "moment")
		reaches(ctx, i, bergv1.PhaseRunning)
		pause()
		freeze(ctx, ns, "UPDATE", updates)
		// Only the operator is frozen. The player's extension reaches the API server before
		// the deletion that the operator has decided upon.
		var once sync.Once
		extended := make(chan struct{})
		instead(later(), cfg, showing(func(r *http.Request) {
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/challengeinstances/"+i.Name) {
				once.Do(func() {
					defer GinkgoRecover()
					defer close(extended)
					patch(ctx, i, func() { i.Spec.Timeout = "9h" })
				})
			}
		}))
		Eventually(extended).Should(BeClosed(), "no deletion is tried")
		observed(ctx, i)
		Expect(i.DeletionTimestamp).To(BeNil())
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		Expect(i.Status.ExpiresAt.Sub(i.Status.StartedAt.Time)).To(Equal(9 * time.Hour))
	})

	It("of deletions is told, tried with growing pauses, and waited out", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "undeletable", oneContainer)
		i, extended := instance(ctx, ns, "undeletable"), instance(ctx, ns, "undeletable")
		reaches(ctx, i, bergv1.PhaseRunning)
		reaches(ctx, extended, bergv1.PhaseRunning)
		pause()
		lift := freeze(ctx, ns, "DELETE", updates)
		var mu sync.Mutex
		var tries []time.Time
		instead(later(), cfg, showing(func(r *http.Request) {
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/challengeinstances/"+i.Name) {
				mu.Lock()
				defer mu.Unlock()
				tries = append(tries, time.Now())
			}
		}))
		for _, blocked := range []*bergv1.ChallengeInstance{i, extended} {
			shows(ctx, blocked, bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonDeletionBlocked)
			Expect(conditions(blocked)).To(ContainSubstring(refusal), "it does not say what the API server said")
			Expect(blocked.Status.Phase).To(Equal(bergv1.PhaseRunning))
			eventually(ctx, blocked, corev1.EventTypeWarning, bergv1.ReasonDeletionBlocked)
		}
		Expect(metric("berg_challengeinstance_longest_overdue_seconds")).To(BeNumerically(">", 1800), "it is an hour late")
		const enough = 7
		Eventually(func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(tries)
		}).Should(BeNumerically(">=", enough))
		mu.Lock()
		Expect(tries[enough-1].Sub(tries[enough-2])).To(BeNumerically(">", 2*time.Second), "the pauses do not grow")
		mu.Unlock()

		By("one that is given more time, and back what was noted of its end, is not blocked any more")
		patch(ctx, extended, func() { extended.Spec.Timeout, extended.Spec.TerminationReason = "9h", "" })
		shows(ctx, extended, bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonLive)

		By("the other one ends when it is allowed to")
		lift()
		gone(ctx, i)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(extended), extended)).To(Succeed())
		Expect(extended.DeletionTimestamp).To(BeNil())
	})

	DescribeTable("is told by an instance that cannot start, which starts when it is lifted",
		func(ctx context.Context, frozen ...string) {
			ns := newNamespace(ctx)
			challenge(ctx, ns, "waits", oneContainer)
			lift := freeze(ctx, ns, "UPDATE", frozen...)
			i := instance(ctx, ns, "waits")
			eventually(ctx, i, corev1.EventTypeWarning, bergv1.ReasonRefused)
			if len(frozen) == 1 && frozen[0] == updates {
				shows(ctx, i, bergv1.ConditionNamespaceCreated, metav1.ConditionFalse, bergv1.ReasonRefused)
				Expect(conditions(i)).To(ContainSubstring(refusal))
				Expect(i.Status.Phase).To(Equal(bergv1.PhasePending))
			}
			Expect(namespaceExists(ctx, i)).To(BeFalse(), "made without a finalizer, or without a trace in the status")
			lift()
			reaches(ctx, i, bergv1.PhaseRunning)
		},
		Entry("of the resource", updates),
		Entry("of the status", statuses),
		Entry("of both", updates, statuses),
	)
})

var _ = Describe("A freeze of the status of an Environment", Serial, func() {
	It("keeps none that is gone", func(ctx context.Context) {
		env := newEnvironment(ctx, newID())
		environmentReaches(ctx, env, quixv1.PhaseReady)
		as, look := impersonating(operatorUser), rawPatch(`{"status":{"message":"probe"}}`)
		freezeWhere(ctx, env.Name, "quix.io", "UPDATE", "request.name == '"+env.Name+"'", "{}", []string{"environments/status"}, func(string) error {
			return as.Status().Patch(ctx, env.DeepCopy(), look, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
		})
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		environmentGone(ctx, env)
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: env.Spec.ID + "-qdep"}, &corev1.Namespace{}))).To(BeTrue(), "its namespace exists")
	})
})

// freeze lets the API server refuse an operation of the operator on the instances of
// a namespace until lift is called. Others may do as they like.
func freeze(ctx context.Context, namespace, operation string, resources ...string) (lift func()) {
	GinkgoHelper()
	// It is of no Challenge, so the operator does nothing with it but put its finalizer on.
	probe := instance(ctx, namespace, "none", func(i *bergv1.ChallengeInstance) { i.GenerateName = "probe-" })
	as, look := impersonating(operatorUser), rawPatch(`{"metadata":{"annotations":{"probe":"1"}},"status":{"namespace":"probe"}}`)
	return freezeWhere(ctx, namespace, "berg.norelect.ch", operation, "true", fmt.Sprintf("{matchLabels: {kubernetes.io/metadata.name: %s}}", namespace), resources,
		func(resource string) error {
			switch {
			case operation == "DELETE":
				return as.Delete(ctx, probe.DeepCopy(), client.DryRunAll)
			case strings.HasSuffix(resource, "/status"):
				return as.Status().Patch(ctx, probe.DeepCopy(), look, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
			default:
				return as.Patch(ctx, probe.DeepCopy(), look, client.DryRunAll)
			}
		})
}

// freezeWhere lets the API server refuse an operation of the operator on some resources
// until lift is called. It returns when each is refused, as attempt finds out.
func freezeWhere(ctx context.Context, name, group, operation, where, namespaces string, resources []string, attempt func(resource string) error) (lift func()) {
	GinkgoHelper()
	name = strings.ToLower(fmt.Sprintf("freeze-%s-%s-%s", operation, strings.ReplaceAll(strings.Join(resources, "-"), "/", "-"), name))
	policy := object(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [%s], apiVersions: ["*"], resources: ["%s"], operations: [%s]}]
  matchConditions: [{name: whom, expression: "request.userInfo.username == '%s'"}, {name: where, expression: "%s"}]
  validations: [{expression: "false", message: %s}]`,
		name, group, strings.Join(resources, `", "`), operation, operatorUser, where, refusal))
	binding := object(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %s}
spec:
  policyName: %s
  validationActions: [Deny]
  matchResources: {namespaceSelector: %s}`, name, name, namespaces))
	Expect(k8s.Create(ctx, policy)).To(Succeed())
	Expect(k8s.Create(ctx, binding)).To(Succeed())
	lift = func() {
		for _, o := range []client.Object{binding, policy} {
			Expect(client.IgnoreNotFound(k8s.Delete(context.Background(), o))).To(Succeed())
		}
	}
	DeferCleanup(lift)
	// The API server takes a moment before it follows a new policy.
	for _, resource := range resources {
		Eventually(func() error { return attempt(resource) }).Should(MatchError(ContainSubstring(refusal)), resource)
	}
	return lift
}

// saysWhy waits for the event that tells why an instance ends; it may be gone.
func saysWhy(ctx context.Context, i *bergv1.ChallengeInstance, note string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var events corev1.EventList
		g.Expect(k8s.List(ctx, &events, client.InNamespace(i.Namespace))).To(Succeed())
		var seen []string
		for _, e := range events.Items {
			if e.InvolvedObject.UID == i.UID && e.Reason == bergv1.ReasonInstanceEnding {
				seen = append(seen, e.Message)
			}
		}
		g.Expect(seen).To(ConsistOf(note))
	}).Should(Succeed())
}

// impersonating returns a client that acts as somebody.
func impersonating(user string) client.Client {
	GinkgoHelper()
	rc := rest.CopyConfig(restConfig)
	rc.Impersonate = rest.ImpersonationConfig{UserName: user}
	c, err := client.New(rc, client.Options{Scheme: k8s.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}
