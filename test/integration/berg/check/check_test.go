package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/berg/check"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

const (
	// toBeSolved gives its flag to a container.
	toBeSolved = `{flagFormat: "berg{...}", containers: [{hostname: web, image: "example.com/web:1", ` +
		`ports: [{name: web, port: 8080, type: publicHttpRoute}, {name: game-1, port: 1337, type: publicPort}], dynamicFlag: {env: {name: FLAG}}}]}`
	// toBeSolvedByAll has one flag for all instances.
	toBeSolvedByAll = `{flag: "berg{before}", containers: [{hostname: web, image: "example.com/web:1", ports: [{name: web, port: 8080, type: publicHttpRoute}]}]}`
	// neverPulled stands for solvers: their pods stay Pending, and specs say how they end, as
	// the kubelet would. Otherwise a simulated node ends every pod of a Job immediately.
	neverPulled = "berg.test/behaviour/image-pull:1"
)

var _ = Describe("A ChallengeCheck", Label("check"), func() {
	var ns string
	BeforeEach(func(ctx context.Context) {
		allowChecks(ctx)
		inprocess.Restart(map[string]string{"CHECK_CONCURRENCY": "2"}, nil)
		ns = bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", toBeSolved)
	})

	It("solves its Challenge, tells of it once, and leaves nothing behind", func(ctx context.Context) {
		before := inprocess.Metric("berg_challengecheck_results_total", "result", "Solved")
		c := newCheck(ctx, ns, "web")
		pod := solverOf(ctx, c)
		i := checked(ctx, c)
		Expect(i.Spec.OwnerID).To(Equal(string(c.UID)))
		Expect(i.Spec.Flag).To(MatchRegexp(`^berg\{check_[a-z2-7]{26}\}$`))
		Expect(i.Labels).To(HaveKeyWithValue(bergv1.LabelCheck, c.Name))
		Expect(metav1.IsControlledBy(i, c)).To(BeTrue())
		reported := map[string]string{}
		for _, e := range pod.Spec.Containers[0].Env {
			reported[e.Name] = e.Value
		}
		web, game := i.Status.Services[0], i.Status.Services[1]
		Expect(reported).To(SatisfyAll(
			HaveKeyWithValue("WEB_ENDPOINT", fmt.Sprintf("%s:%d", web.Hostname, web.Port)), HaveKeyWithValue("WEB_URL", web.URL),
			HaveKeyWithValue("GAME_1_HOST", game.Hostname), HaveKeyWithValue("GAME_1_PORT", fmt.Sprint(game.Port)),
			HaveKeyWithValue("FLAG_FILE", "/dev/termination-log"), HaveKeyWithValue("LEVEL", "$$(HOME) 5"), Not(HaveKey("CHALLENGE_NAMESPACE"))))
		Expect(pod.Spec.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
		Expect(apiserver.Names(ctx, &ciliumv2.CiliumNetworkPolicyList{}, client.InNamespace(pod.Namespace))).To(ConsistOf("solver"))
		var solvers corev1.Namespace
		Expect(k8s.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &solvers)).To(Succeed())
		Expect(solvers.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))

		podEnds(ctx, pod, 0, "here it is: "+i.Spec.Flag+"\n")
		shows(ctx, c, metav1.ConditionTrue, bergv1.CheckSolved)
		Expect(c.Status.LastResult.ExitCode).To(HaveValue(BeZero()))
		Expect(c.Status.LastResult.StartSeconds).NotTo(BeNil())
		Expect(c.Status.LastResult.SolveSeconds).To(HaveValue(BeEquivalentTo(7)))
		rests(ctx, c)
		expect.Event(ctx, c, corev1.EventTypeNormal, "Solved")
		Expect(inprocess.Metric("berg_challengecheck_results_total", "result", "Solved") - before).To(BeEquivalentTo(1))
		Expect(inprocess.Metric("berg_challengecheck_solvable", "challenge", "web")).To(BeEquivalentTo(1))
		secret(ctx, c, i.Spec.Flag)

		By("writing nothing more")
		version := c.ResourceVersion
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
			g.Expect(c.ResourceVersion).To(Equal(version))
		}).WithTimeout(3 * time.Second).Should(Succeed())
	})

	DescribeTable("tells why its Challenge was not solved",
		func(ctx context.Context, exit int32, reason, said string, want bergv1.CheckResultType, output string) {
			c := newCheck(ctx, ns, "web")
			pod := solverOf(ctx, c)
			flag := checked(ctx, c).Spec.Flag
			endsFor(ctx, pod, exit, reason, strings.ReplaceAll(said, "FLAG", flag))
			shows(ctx, c, metav1.ConditionFalse, want)
			Expect(c.Status.LastResult.Output).To(Equal(output))
			Expect(c.Status.History).To(HaveLen(1))
			Expect(c.Status.History[0].Output).To(BeEmpty())
			rests(ctx, c)
			expect.Event(ctx, c, corev1.EventTypeWarning, string(want))
			secret(ctx, c, flag)
		},
		Entry("it wrote nothing", int32(0), "Completed", "", bergv1.CheckWrongFlag, ""),
		Entry("it found another flag", int32(0), "Completed", "berg{another}", bergv1.CheckWrongFlag, "<flag>"),
		Entry("it crashed", int32(1), "Error", "panic: no such page\n", bergv1.CheckSolverCrashed, "panic: no such page"),
		Entry("it crashed after it had the flag", int32(1), "Error", "got FLAG\nTraceback", bergv1.CheckSolverCrashed, "got <flag>\nTraceback"),
		Entry("it cannot reach the instance", int32(69), "Error", "connection refused", bergv1.CheckUnreachable, "connection refused"),
		Entry("it took too much memory", int32(137), "OOMKilled", "", bergv1.CheckSolverCrashed, ""),
		Entry("it cannot be run", int32(128), "StartError", "exec: no such file", bergv1.CheckSolverNotStarted, ""),
	)

	It("says why its instance did not start", func(ctx context.Context) {
		bergtest.Challenge(ctx, ns, "gone", `containers: [{hostname: web, image: "`+neverPulled+`", ports: [{name: web, port: 8080, type: publicHttpRoute}], dynamicFlag: {env: {name: FLAG}}}]`)
		c := newCheck(ctx, ns, "gone", withShortTimeout)
		shows(ctx, c, metav1.ConditionFalse, bergv1.CheckNeverStarted)
		Expect(c.Status.LastResult.Message).To(ContainSubstring("ImagePullBackOff"))
		rests(ctx, c)
	})

	It("says that its solver did not start", func(ctx context.Context) {
		c := newCheck(ctx, ns, "web", withShortTimeout)
		shows(ctx, c, metav1.ConditionFalse, bergv1.CheckSolverNotStarted)
		Expect(c.Status.LastResult.Message).To(ContainSubstring("ImagePullBackOff"))
		rests(ctx, c)
	})

	It("says why the API server refuses the pod of its solver", func(ctx context.Context) {
		c := newCheck(ctx, ns, "web", func(c *bergv1.ChallengeCheck) { c.Spec.Solver.RuntimeClassName, c.Spec.Timeout = "none-such", "40s" })
		why := And(ContainSubstring("refuses the pod of the solver: pods "), ContainSubstring(`RuntimeClass "none-such" not found`), ContainSubstring("kubectl get runtimeclasses"))
		expect.Becomes(ctx, c, func(g Gomega) {
			running := meta.FindStatusCondition(c.Status.Conditions, bergv1.CheckConditionRunning)
			g.Expect(running).NotTo(BeNil())
			g.Expect(running.Message).To(why)
		})
		shows(ctx, c, metav1.ConditionFalse, bergv1.CheckSolverNotStarted)
		Expect(c.Status.LastResult.Message).To(why)
		rests(ctx, c)
	})

	It("is made again when something has changed, and keeps as many results as its spec says", func(ctx context.Context) {
		c := newCheck(ctx, ns, "web", func(c *bergv1.ChallengeCheck) { c.Spec.HistoryLimit = 2 })
		const rounds = 12 // more than a fight may have, which it is not
		for n := range rounds {
			pod := solverOf(ctx, c)
			podEnds(ctx, pod, int32(n+1), "")
			expect.Becomes(ctx, c, func(g Gomega) {
				g.Expect(c.Status.Run).To(BeNil())
				g.Expect(c.Status.LastResult).NotTo(BeNil())
				g.Expect(c.Status.LastResult.ExitCode).To(HaveValue(BeEquivalentTo(n + 1)))
			})
			switch {
			case n == rounds-1:
			case n%2 == 0:
				apiserver.Change(ctx, c, func() { c.Spec.Solver.Env[0].Value = fmt.Sprint(n) })
			default:
				challenge := apiserver.Get[bergv1.Challenge](ctx, client.ObjectKey{Namespace: ns, Name: "web"})
				apiserver.Change(ctx, challenge, func() { challenge.Spec.Difficulty = fmt.Sprint(n) })
			}
		}
		Expect(c.Status.History).To(HaveLen(2))
		Expect(c.Status.History[0].ExitCode).To(HaveValue(BeEquivalentTo(rounds)))
	}, SpecTimeout(limits.Scaled(5*time.Minute)))

	It("waits its turn, and lets players go first", func(ctx context.Context) {
		first := newCheck(ctx, ns, "web")
		pod := solverOf(ctx, first)
		second := newCheck(ctx, ns, "web")
		checkRunning(ctx, second, bergv1.CheckReasonQueued)

		By("breaking off for a player who waits for room")
		bergtest.Challenge(ctx, ns, "large", bergtest.NeverReady)
		player := bergtest.Instance(ctx, ns, "large")
		rests(ctx, first)
		Expect(first.Status.LastResult).To(BeNil())
		expect.Event(ctx, first, corev1.EventTypeNormal, bergv1.CheckReasonInterrupted)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(MatchError(apierrors.IsNotFound, "is gone"))
		checkRunning(ctx, second, bergv1.CheckReasonPlayersFirst)

		By("going on when he does not wait any more")
		Expect(k8s.Delete(ctx, player)).To(Succeed())
		podEnds(ctx, solverOf(ctx, second), 0, checked(ctx, second).Spec.Flag)
		shows(ctx, second, metav1.ConditionTrue, bergv1.CheckSolved)
	})

	It("gives its room to a player who waits in the queue", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"CHECK_CONCURRENCY": "1", "CHALLENGE_MAX_INSTANCES": "1"}, nil)
		c := newCheck(ctx, ns, "web")
		solverOf(ctx, c)
		player := bergtest.Instance(ctx, ns, "web")
		expect.Event(ctx, c, corev1.EventTypeNormal, bergv1.CheckReasonInterrupted)
		expect.Reaches(ctx, player, bergv1.PhaseRunning)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		Expect(c.Status.LastResult).To(BeNil(), "that it was broken off tells nothing of the Challenge")

		By("going on when he has ended")
		Expect(k8s.Delete(ctx, player)).To(Succeed())
		podEnds(ctx, solverOf(ctx, c), 0, checked(ctx, c).Spec.Flag)
		shows(ctx, c, metav1.ConditionTrue, bergv1.CheckSolved)
	})

	It("that is deleted while it is made leaves nothing behind", func(ctx context.Context) {
		c := newCheck(ctx, ns, "web")
		pod := solverOf(ctx, c)
		i := checked(ctx, c)
		expect.Deleted(ctx, c)
		expect.Gone(ctx, i)
		Expect(k8s.Get(ctx, client.ObjectKey{Name: pod.Namespace}, &corev1.Namespace{})).To(MatchError(apierrors.IsNotFound, "is gone"))
	})

	It("touches nothing that is not its own", func(ctx context.Context) {
		c := newCheck(ctx, ns, "web", suspended)
		checkRunning(ctx, c, bergv1.CheckReasonSuspended)
		foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: check.NamespacePrefix + string(c.UID), Labels: map[string]string{"app.kubernetes.io/managed-by": "berg"}}}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())
		apiserver.Change(ctx, c, func() { c.Spec.Suspend = false })
		shows(ctx, c, metav1.ConditionFalse, bergv1.CheckRefused)
		Expect(c.Status.LastResult.Message).To(ContainSubstring(foreign.Name))
		rests(ctx, c, foreign.Name)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
		Expect(foreign.DeletionTimestamp).To(BeNil())
		Expect(k8s.Delete(ctx, foreign)).To(Succeed())
	})

	// An API server that has just started knows of no rights for a moment.
	It("tells only of refusals that last", func(ctx context.Context) {
		var refused atomic.Int32
		var lasting atomic.Bool
		inprocess.Restart(map[string]string{"CHECK_CONCURRENCY": "2"}, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/jobs") && (lasting.Load() || refused.Add(1) <= 3) {
				return transport.Refusal(r, http.StatusForbidden, metav1.StatusReasonForbidden, "no request is allowed yet"), nil
			}
			return next.RoundTrip(r)
		}))
		c := newCheck(ctx, ns, "web")
		podEnds(ctx, solverOf(ctx, c), 0, checked(ctx, c).Spec.Flag)
		shows(ctx, c, metav1.ConditionTrue, bergv1.CheckSolved)
		Expect(refused.Load()).To(BeNumerically(">", 3))

		lasting.Store(true)
		bergtest.Challenge(ctx, ns, "other", toBeSolved)
		other := newCheck(ctx, ns, "other")
		shows(ctx, other, metav1.ConditionFalse, bergv1.CheckRefused)
		Expect(other.Status.LastResult.Message).To(ContainSubstring("no request is allowed yet"))
	})

	It("says what it waits for", func(ctx context.Context) {
		missing := newCheck(ctx, ns, "missing")
		checkRunning(ctx, missing, bergv1.ReasonChallengeMissing)
		bergtest.Challenge(ctx, ns, "flagless", bergtest.OneContainer)
		checkRunning(ctx, newCheck(ctx, ns, "flagless"), bergv1.CheckReasonNoFlag)
		frozen := bergtest.Challenge(ctx, ns, "frozen", toBeSolved, bergtest.Frozen)
		c := newCheck(ctx, ns, "frozen")
		checkRunning(ctx, c, bergv1.ReasonFrozen)
		apiserver.Change(ctx, frozen, func() { frozen.Annotations = nil })
		solverOf(ctx, c)
		bergtest.Challenge(ctx, ns, "missing", toBeSolved)
		solverOf(ctx, missing)
	})

	It("is broken off when its Challenge changes during the check, and repeated for the new version", func(ctx context.Context) {
		now := &bergtest.SteppingClock{}
		inprocess.Instead(now, inprocess.With(map[string]string{"CHECK_CONCURRENCY": "2"}), nil)
		challenge := bergtest.Challenge(ctx, ns, "static", toBeSolvedByAll)
		c := newCheck(ctx, ns, "static", withLongTimeout)
		solverOf(ctx, c)
		apiserver.Change(ctx, challenge, func() { challenge.Spec.Flag = "berg{after}" })
		rests(ctx, c)
		Expect(c.Status.LastResult).To(BeNil(), "what the old version's solver finds tells nothing of the new one")
		expect.Event(ctx, c, corev1.EventTypeNormal, bergv1.CheckReasonInterrupted)

		now.Step(2 * time.Minute) // past the pause after one that was broken off
		podEnds(ctx, solverOf(ctx, c), 0, "berg{after}")
		shows(ctx, c, metav1.ConditionTrue, bergv1.CheckSolved)
		rests(ctx, c)
	})

	It("is made every so often, and once more before players see the Challenge", func(ctx context.Context) {
		now := &bergtest.SteppingClock{}
		inprocess.Instead(now, inprocess.With(map[string]string{"CHECK_CONCURRENCY": "2"}), nil)
		shown := now.Now().Add(25 * time.Minute).UTC().Truncate(time.Second)
		hidden := bergtest.Challenge(ctx, ns, "hidden", toBeSolved)
		apiserver.Change(ctx, hidden, func() { hidden.Spec.HideUntil = shown.Format(time.RFC3339) })
		c := newCheck(ctx, ns, "hidden", withLongTimeout, func(c *bergv1.ChallengeCheck) {
			c.Spec.Schedule = bergv1.CheckSchedule{Every: "10m", BeforeHideUntil: "8m"}
		})
		made := func(step string) time.Time {
			GinkgoHelper()
			By(step)
			podEnds(ctx, solverOf(ctx, c), 0, checked(ctx, c).Spec.Flag)
			shows(ctx, c, metav1.ConditionTrue, bergv1.CheckSolved)
			rests(ctx, c)
			return c.Status.LastResult.StartedAt.Time
		}
		dueAt := func(at time.Time) {
			GinkgoHelper()
			Expect(c.Status.NextRunAt).NotTo(BeNil())
			Expect(c.Status.NextRunAt.Time).To(BeTemporally("==", at))
			now.Step(at.Sub(now.Now()) - 5*time.Second)
			Consistently(func(g Gomega) {
				g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
				g.Expect(c.Status.Run).To(BeNil(), "it is made too early")
			}).WithTimeout(time.Second).Should(Succeed())
			now.Step(5 * time.Second)
		}
		first := made("first")
		dueAt(first.Add(10 * time.Minute))
		made("after ten minutes")
		dueAt(shown.Add(-8 * time.Minute)) // which is sooner than ten minutes later
		third := made("before players see it")
		dueAt(third.Add(10 * time.Minute))
		made("ten minutes after that")
	}, SpecTimeout(limits.Scaled(3*time.Minute)))

	It("is taken up by the next operator wherever the last one was killed", func(ctx context.Context) {
		for killedAfter := int64(1); ; killedAfter++ {
			Expect(killedAfter).To(BeNumerically("<", 40), "a check has that many writes")
			By(fmt.Sprintf("killing it after %d writes", killedAfter))
			inprocess.Pause()
			cut := &cut{after: killedAfter}
			stop := inprocess.Instead(clock.RealClock{}, inprocess.With(map[string]string{"CHECK_CONCURRENCY": "2"}), cut.wrap)
			c := newCheck(ctx, ns, "web")
			completed := false
			Eventually(func() bool {
				endsIfThere(ctx, c)
				Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
				completed = c.Status.LastResult != nil && c.Status.Run == nil && len(c.Finalizers) == 0
				return completed || cut.happened.Load()
			}).Should(BeTrue())
			stop()
			inprocess.Instead(clock.RealClock{}, inprocess.With(map[string]string{"CHECK_CONCURRENCY": "2"}), nil)
			Eventually(func(g Gomega) {
				endsIfThere(ctx, c)
				g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
				g.Expect(c.Status.LastResult).NotTo(BeNil())
			}).Should(Succeed())
			Expect(c.Status.LastResult.Result).To(Equal(bergv1.CheckSolved))
			rests(ctx, c)
			Expect(c.Status.History).To(HaveLen(1))
			Expect(k8s.Delete(ctx, c)).To(Succeed())
			if completed && !cut.happened.Load() {
				return
			}
		}
	}, SpecTimeout(limits.Scaled(8*time.Minute)))
})

var _ = Describe("An operator without CHECK_CONCURRENCY", Label("check"), func() {
	It("asks nothing about checks", func(ctx context.Context) {
		allowChecks(ctx)
		var asked atomic.Int64
		withoutQuestions := map[string]string{"CHALLENGE_USER_NAMESPACES": "false"} // auto asks for the right to see nodes
		inprocess.Restart(withoutQuestions, transport.Showing(func(r *http.Request) {
			if strings.Contains(r.URL.Path, "challengechecks") || strings.Contains(r.URL.Path, "/jobs") || strings.Contains(r.URL.Path, "selfsubjectaccessreviews") {
				asked.Add(1)
			}
		}))
		ns := bergtest.Publish(ctx, "web", toBeSolved)
		c := newCheck(ctx, ns, "web")
		bergtest.Running(ctx, ns, "web")
		Expect(asked.Load()).To(BeZero())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		Expect(c.Status.Conditions).To(BeEmpty())
	})

	It("has no right that checks need, and does not start with it before it has them", func(ctx context.Context) {
		inprocess.Pause()
		rc := rest.CopyConfig(restConfig)
		rc.Impersonate = rest.ImpersonationConfig{UserName: apiserver.OperatorUser}
		p, enabled := inprocess.Load(inprocess.With(map[string]string{"CHECK_CONCURRENCY": "1"}), families.All()...)
		_, err := operator.New(ctx, rc, p, enabled, operator.Options{SkipNameValidation: true, Clock: clock.RealClock{}})
		Expect(err).To(MatchError(ContainSubstring("config/berg/check")))
	})
})

var _ = DescribeTable("The API server refuses a ChallengeCheck", Label("check"),
	func(ctx context.Context, spec, field string) {
		c := &bergv1.ChallengeCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "bad-"}}
		bergtest.Parse(spec, &c.Spec)
		err := k8s.Create(ctx, c, client.DryRunAll)
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(field)))
	},
	Entry("without an image", `{challengeRef: {name: a}, solver: {image: ""}}`, "spec.solver.image"),
	Entry("with a timeout of nothing", `{challengeRef: {name: a}, solver: {image: a}, timeout: 0s}`, "timeout must be from 10s to 1h"),
	Entry("with a timeout of a day", `{challengeRef: {name: a}, solver: {image: a}, timeout: 24h}`, "timeout must be from 10s to 1h"),
	Entry("with a timeout of letters", `{challengeRef: {name: a}, solver: {image: a}, timeout: soon}`, "spec.timeout"),
	Entry("every second", `{challengeRef: {name: a}, solver: {image: a}, schedule: {every: 1s}}`, "schedule.every must be 1m or more"),
	Entry("a moment before players see it", `{challengeRef: {name: a}, solver: {image: a}, schedule: {beforeHideUntil: 5s}}`, "schedule.beforeHideUntil must be 1m or more"),
	Entry("with a variable of two words", `{challengeRef: {name: a}, solver: {image: a, env: [{name: "a b"}]}}`, "spec.solver.env"),
	Entry("with a long history", `{challengeRef: {name: a}, solver: {image: a}, historyLimit: 11}`, "spec.historyLimit"),
	Entry("with an odd amount", `{challengeRef: {name: a}, solver: {image: a, resourceLimits: {memory: much}}}`, "spec.solver.resourceLimits.memory"),
)

// allowChecks gives the operator the rights of config/berg/check until the spec ends.
func allowChecks(ctx context.Context) {
	GinkgoHelper()
	Expect(installed.Folder(ctx, k8s, "config/berg/check", "integration")).To(Succeed())
	// By then the operator that all specs share runs again, which makes no checks.
	DeferCleanup(func(ctx context.Context) {
		Expect(k8s.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berg-operator-berg-check"}})).To(Succeed())
	})
	for _, verb := range []string{"list", "watch"} { // the API server goes by it a moment later
		Eventually(func() bool { return apiserver.May(ctx, apiserver.OperatorUser, may(verb, "batch", "jobs")) }).Should(BeTrue())
	}
	Eventually(func() bool {
		return apiserver.May(ctx, apiserver.OperatorUser, may("create", bergv1.GroupVersion.Group, "challengeinstances"))
	}).Should(BeTrue())
}

func may(verb, group, resource string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource}
}

func suspended(c *bergv1.ChallengeCheck) { c.Spec.Suspend = true }

// withShortTimeout is for one that is to run out of time.
func withShortTimeout(c *bergv1.ChallengeCheck) { c.Spec.Timeout = "10s" }

// withLongTimeout is for a clock that is put forward during the spec: the API server's, by which the age of a solver
// is known, is not.
func withLongTimeout(c *bergv1.ChallengeCheck) { c.Spec.Timeout = "1h" }

// newCheck creates one of a Challenge, and deletes it when the spec ends.
func newCheck(ctx context.Context, ns, challenge string, modify ...func(*bergv1.ChallengeCheck)) *bergv1.ChallengeCheck {
	GinkgoHelper()
	c := &bergv1.ChallengeCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: challenge + "-"},
		Spec: bergv1.ChallengeCheckSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: challenge, Namespace: ns},
			Solver:       bergv1.Solver{Image: neverPulled, Env: []bergv1.SolverVariable{{Name: "LEVEL", Value: "$(HOME) 5"}}},
			Timeout:      "3m",
		},
	}
	for _, m := range modify {
		m(c)
	}
	Expect(k8s.Create(ctx, c)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		expect.Removed(ctx, c)
	})
	return c
}

// solverOf waits for the pod of a check's solver.
func solverOf(ctx context.Context, c *bergv1.ChallengeCheck) *corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	expect.Becomes(ctx, c, func(g Gomega) {
		g.Expect(k8s.List(ctx, &pods, client.InNamespace(check.NamespacePrefix+string(c.UID)))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1), "conditions: %s", expect.Conditions(c))
		g.Expect(pods.Items[0].DeletionTimestamp).To(BeNil())
		g.Expect(pods.Items[0].Spec.NodeName).NotTo(BeEmpty())
	})
	return &pods.Items[0]
}

// checked is the instance that a check plays.
func checked(ctx context.Context, c *bergv1.ChallengeCheck) *bergv1.ChallengeInstance {
	GinkgoHelper()
	i := apiserver.Get[bergv1.ChallengeInstance](ctx, client.ObjectKey{Namespace: c.Namespace, Name: "check-" + string(c.UID)})
	return i
}

// podEnds is how the kubelet tells that a solver has ended after seven seconds.
func podEnds(ctx context.Context, pod *corev1.Pod, exit int32, said string) {
	GinkgoHelper()
	reason := "Completed"
	if exit != 0 {
		reason = "Error"
	}
	endsFor(ctx, pod, exit, reason, said)
}

func endsFor(ctx context.Context, pod *corev1.Pod, exit int32, reason, said string) {
	GinkgoHelper()
	Expect(endPod(ctx, pod, exit, reason, said)).To(Succeed())
}

func endPod(ctx context.Context, pod *corev1.Pod, exit int32, reason, said string) error {
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodSucceeded
	if exit != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	now := time.Now()
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "solver", Image: neverPulled,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: exit, Reason: reason, Message: said, StartedAt: metav1.Time{Time: now.Add(-7 * time.Second)}, FinishedAt: metav1.Time{Time: now},
		}},
	}}
	return k8s.Status().Patch(ctx, pod, client.MergeFrom(before))
}

// endsIfThere ends a solver that is there with the flag.
func endsIfThere(ctx context.Context, c *bergv1.ChallengeCheck) {
	var pods corev1.PodList
	i := &bergv1.ChallengeInstance{}
	if k8s.List(ctx, &pods, client.InNamespace(check.NamespacePrefix+string(c.UID))) != nil || len(pods.Items) == 0 || pods.Items[0].Status.Phase != corev1.PodPending ||
		k8s.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: "check-" + string(c.UID)}, i) != nil {
		return
	}
	_ = endPod(ctx, &pods.Items[0], 0, "Completed", i.Spec.Flag) // it may be gone by now
}

// shows waits until Solvable says so.
func shows(ctx context.Context, c *bergv1.ChallengeCheck, status metav1.ConditionStatus, result bergv1.CheckResultType) {
	GinkgoHelper()
	expect.Shows(ctx, c, bergv1.CheckConditionSolvable, status, string(result))
	Expect(c.Status.LastResult.Result).To(Equal(result))
	expect.Readable(c.Status.Conditions)
}

// checkRunning waits until no check is made, for a reason.
func checkRunning(ctx context.Context, c *bergv1.ChallengeCheck, reason string) {
	GinkgoHelper()
	expect.Shows(ctx, c, bergv1.CheckConditionRunning, metav1.ConditionFalse, reason)
}

// rests waits until nothing is left of a check that was made, but for namespaces of others.
func rests(ctx context.Context, c *bergv1.ChallengeCheck, foreign ...string) {
	GinkgoHelper()
	expect.Becomes(ctx, c, func(g Gomega) {
		g.Expect(c.Status.Run).To(BeNil(), expect.Conditions(c))
		g.Expect(c.Finalizers).To(BeEmpty())
		g.Expect(meta.IsStatusConditionFalse(c.Status.Conditions, bergv1.CheckConditionRunning)).To(BeTrue())
	})
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: "check-" + string(c.UID)}, &bergv1.ChallengeInstance{})).To(MatchError(apierrors.IsNotFound, "is gone"))
	if len(foreign) == 0 {
		Expect(k8s.Get(ctx, client.ObjectKey{Name: check.NamespacePrefix + string(c.UID)}, &corev1.Namespace{})).To(MatchError(apierrors.IsNotFound, "is gone"))
	}
	jobs := apiserver.List[batchv1.JobList](ctx, client.InNamespace(check.NamespacePrefix+string(c.UID)))
	Expect(jobs.Items).To(BeEmpty())
}

// secret checks that a flag stands neither in a check nor in an event.
func secret(ctx context.Context, c *bergv1.ChallengeCheck, flag string) {
	GinkgoHelper()
	text, err := json.Marshal(c)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(text)).NotTo(ContainSubstring(flag))
	events := apiserver.List[eventsv1.EventList](ctx)
	for _, e := range events.Items {
		Expect(e.Note).NotTo(ContainSubstring(flag))
	}
}

// cut stands between an operator and the API server, and lets nothing through after so many
// writes that are about checks: to the API server the operator was killed.
type cut struct {
	after    int64
	writes   atomic.Int64
	happened atomic.Bool
}

var errCut = errors.New("the operator was killed")

func (c *cut) wrap(next http.RoundTripper) http.RoundTripper {
	return transport.Func(func(r *http.Request) (*http.Response, error) {
		if c.happened.Load() && r.Method != http.MethodGet {
			return nil, errCut
		}
		if r.Method != http.MethodGet && aboutChecks(r) && c.writes.Add(1) > c.after {
			c.happened.Store(true)
			return nil, errCut
		}
		return next.RoundTrip(r)
	})
}

func aboutChecks(r *http.Request) bool {
	for _, part := range []string{"/challengechecks/", "/" + check.NamespacePrefix, "/challengeinstances/check-"} {
		if strings.Contains(r.URL.Path, part) {
			return true
		}
	}
	return r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, "/challengeinstances") || strings.HasSuffix(r.URL.Path, "/namespaces"))
}
