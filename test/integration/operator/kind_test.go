package operator

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

const kindFinalizer = "kit.example.com/kind"

// frame is a Kind of its own for Environments. The operator, which has another one, does not run.
type frame struct {
	reconcile.Kind[*quixv1.Environment, struct{}]
	ctrlreconcile.Reconciler
	events *events.FakeRecorder
	// writes counts the requests that are no reads, applied the calls of Apply without a problem before it.
	writes, applied int
	// finalized are the UIDs of the calls of Finalize, forgotten the names of those of Forget.
	finalized []types.UID
	forgotten []string

	// Of the next reconciliation: apply is called by Apply, problem is met by it, busy keeps Finalize from its end.
	apply   func(*quixv1.Environment)
	problem *outcome.Problem
	busy    bool
}

func newFrame() *frame {
	inprocess.Pause()
	f := &frame{events: events.NewFakeRecorder(100), apply: func(*quixv1.Environment) {}}
	f.Kind = reconcile.Kind[*quixv1.Environment, struct{}]{
		Client: interceptor.NewClient(k8s, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				f.writes++
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				f.writes++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}),
		Events: f.events, Clock: clock.RealClock{}, Metrics: reconcile.NewMetrics("frame", "Failures."),
		Finalizer: kindFinalizer, FinalizerCondition: quixv1.ConditionNamespaceReady,
		Observe: func(context.Context, *quixv1.Environment) (struct{}, error) { return struct{}{}, nil },
		Apply: func(_ context.Context, env *quixv1.Environment, _ *struct{}, problems *outcome.Problems) error {
			if len(*problems) == 0 {
				f.applied++
			}
			problems.Add(f.problem)
			f.apply(env)
			return nil
		},
		Status: func(env *quixv1.Environment, _ struct{}, problems outcome.Problems, now time.Time) reconcile.Ready {
			set := conditions.NewSetter(env, &env.Status.Conditions, now)
			if p := problems.First(); p != nil {
				set(p.Condition, metav1.ConditionFalse, p.Reason, p.Message)
			} else {
				set(quixv1.ConditionNamespaceReady, metav1.ConditionTrue, quixv1.ReasonCreated, "In place")
			}
			return reconcile.ReadyUnless(problems.First(), quixv1.ReasonEnvironmentReady, "In place")
		},
		Touch: func(env *quixv1.Environment, now time.Time) { env.Status.LastUpdated = &metav1.Time{Time: now} },
		Finalize: func(_ context.Context, env *quixv1.Environment, _ time.Time) (bool, time.Duration, error) {
			f.finalized = append(f.finalized, env.UID)
			return !f.busy, 0, nil
		},
		Forget: func(_ context.Context, key types.NamespacedName) error {
			f.forgotten = append(f.forgotten, key.Name)
			return nil
		},
	}
	f.Reconciler = f.Kind.Reconciler()
	return f
}

// environment creates one of a name, which a spec that fails leaves no finalizer on.
func (f *frame) environment(ctx context.Context, name string) *quixv1.Environment {
	GinkgoHelper()
	env := quixtest.Environment(ctx, quixtest.NewID(), func(env *quixv1.Environment) { env.GenerateName, env.Name = "", name })
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(k8s.Patch(ctx, env.DeepCopy(), apiserver.RawPatch(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	})
	return env
}

// reconcile reconciles an Environment once, and reads it again if it exists. It returns after how long it would be
// reconciled again.
func (f *frame) reconcile(ctx context.Context, env *quixv1.Environment) time.Duration {
	GinkgoHelper()
	key := client.ObjectKeyFromObject(env)
	result, err := f.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	Expect(err).NotTo(HaveOccurred())
	Expect(client.IgnoreNotFound(k8s.Get(ctx, key, env))).To(Succeed())
	return result.RequeueAfter
}

// warnings are the events since the last call.
func (f *frame) warnings() (all []string) {
	for len(f.events.Events) > 0 {
		all = append(all, <-f.events.Events)
	}
	return all
}

var _ = Describe("The frame of every Kind", func() {
	var f *frame
	var name string
	BeforeEach(func() { f, name = newFrame(), quixtest.NewID() })

	It("writes nothing at the second reconciliation of an unchanged resource", Label("versions"), func(ctx context.Context) {
		env := f.environment(ctx, name)
		f.problem = &outcome.Problem{Condition: quixv1.ConditionNamespaceReady, Reason: "Missing", Class: outcome.Blocked, Message: "Create it"}
		Expect(f.reconcile(ctx, env)).To(BeZero(), "a person must act, and the event of that triggers the next reconciliation")
		Expect(f.writes).To(Equal(2), "the finalizer and the status")
		Expect(env.Finalizers).To(ContainElement(kindFinalizer))
		Expect(env.Status.ObservedGeneration).To(Equal(env.Generation))
		Expect(meta.IsStatusConditionFalse(env.Status.Conditions, reconcile.ConditionReady)).To(BeTrue())
		Expect(meta.IsStatusConditionTrue(env.Status.Conditions, reconcile.ConditionStalled)).To(BeTrue())
		Expect(f.warnings()).To(ConsistOf(ContainSubstring("Missing")))

		version := env.ResourceVersion
		f.reconcile(ctx, env)
		Expect(f.writes).To(Equal(2))
		Expect(f.warnings()).To(BeEmpty(), "an event repeats an old problem")
		Expect(env.ResourceVersion).To(Equal(version))

		f.problem = nil
		f.reconcile(ctx, env)
		Expect(f.writes).To(Equal(3))
		Expect(meta.IsStatusConditionTrue(env.Status.Conditions, reconcile.ConditionReady)).To(BeTrue())
		Expect(meta.FindStatusCondition(env.Status.Conditions, reconcile.ConditionStalled)).To(BeNil())
		f.reconcile(ctx, env)
		Expect(f.writes).To(Equal(3))
	})

	It("reports a refused finalizer, applies nothing, and continues when the finalizer is accepted", func(ctx context.Context) {
		env := f.environment(ctx, name)
		lift := apiserver.Deny(ctx, apiserver.Denial{
			Name: "frame-" + name, Group: quixv1.GroupVersion.Group, Resources: []string{"environments"}, Operation: "UPDATE",
			Conditions: []string{"request.name == '" + name + "'"},
		}, func() error {
			return k8s.Patch(ctx, env.DeepCopy(), apiserver.RawPatch(`{"metadata":{"annotations":{"probe":"1"}}}`), client.DryRunAll)
		})
		Expect(f.reconcile(ctx, env)).To(BeNumerically(">", 0), "it is not tried again")
		Expect(f.applied).To(BeZero())
		expect.Shows(ctx, env, quixv1.ConditionNamespaceReady, metav1.ConditionFalse, outcome.ReasonRefused)
		ready := meta.FindStatusCondition(env.Status.Conditions, reconcile.ConditionReady)
		Expect(ready.Message).To(And(ContainSubstring("finalizer"), ContainSubstring(apiserver.Refusal)))
		Expect(meta.IsStatusConditionTrue(env.Status.Conditions, reconcile.ConditionStalled)).To(BeTrue())
		Expect(f.warnings()).To(ConsistOf(ContainSubstring(outcome.ReasonRefused)))

		lift()
		Eventually(func() []string {
			f.reconcile(ctx, env)
			return env.Finalizers
		}).Should(ContainElement(kindFinalizer))
		Expect(f.applied).To(Equal(1))
		expect.Shows(ctx, env, reconcile.ConditionReady, metav1.ConditionTrue, quixv1.ReasonEnvironmentReady)
	})

	It("observes again when another client wrote first, and reports no problem", func(ctx context.Context) {
		env := f.environment(ctx, name)
		f.apply = func(now *quixv1.Environment) {
			Expect(k8s.Patch(ctx, now.DeepCopy(), apiserver.RawPatch(`{"metadata":{"labels":{"by":"another"}}}`))).To(Succeed())
		}
		Expect(f.reconcile(ctx, env)).To(BeNumerically(">", 0), "it is not tried again")
		Expect(env.Status.Conditions).To(BeEmpty())
		Expect(env.Labels).To(HaveKeyWithValue("by", "another"))
		Expect(f.warnings()).To(BeEmpty())

		f.apply = func(*quixv1.Environment) {}
		Expect(f.reconcile(ctx, env)).To(BeZero())
		expect.Shows(ctx, env, reconcile.ConditionReady, metav1.ConditionTrue, quixv1.ReasonEnvironmentReady)
		Expect(env.Labels).To(HaveKeyWithValue("by", "another"))
	})

	It("keeps a deleted resource until nothing is left of it, and then forgets it", func(ctx context.Context) {
		env := f.environment(ctx, name)
		f.reconcile(ctx, env)
		Expect(k8s.Delete(ctx, env)).To(Succeed())
		f.busy = true
		f.reconcile(ctx, env)
		f.reconcile(ctx, env)
		Expect(f.finalized).To(Equal([]types.UID{env.UID, env.UID}))
		Expect(env.Finalizers).To(ContainElement(kindFinalizer))
		f.busy = false
		f.reconcile(ctx, env)
		expect.Gone(ctx, env)
		Expect(f.forgotten).To(BeEmpty())
		f.reconcile(ctx, env)
		Expect(f.forgotten).To(Equal([]string{name}))
		Expect(f.finalized).To(HaveLen(3))
	})

	It("starts from nothing with another resource of the same name", func(ctx context.Context) {
		first := f.environment(ctx, name)
		f.problem = &outcome.Problem{Condition: quixv1.ConditionNamespaceReady, Reason: "WriteFailed", Class: outcome.Retry, Message: "no answer", Err: errors.New("no answer")}
		shortest := f.reconcile(ctx, first)
		for range 3 {
			Expect(f.reconcile(ctx, first)).To(BeNumerically(">", shortest))
		}
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		f.reconcile(ctx, first)
		expect.Gone(ctx, first)

		second := f.environment(ctx, name)
		Expect(f.reconcile(ctx, second)).To(Equal(shortest), "it has the delay of the first one")
		Expect(second.UID).NotTo(Equal(first.UID))
		Expect(second.Finalizers).To(ContainElement(kindFinalizer))
		Expect(k8s.Delete(ctx, second)).To(Succeed())
		f.reconcile(ctx, second)
		Expect(f.finalized).To(Equal([]types.UID{first.UID, second.UID}))
		expect.Gone(ctx, second)
	})
})
