package life

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/bulk"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

var _ = Describe("The time of an instance", func() {
	It("is followed while it lives: extended, shortened, expired immediately", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "extend", bergtest.OneContainer, bergtest.WithTimeout("30m"))
		Expect(i.Status.ExpiresAt.Sub(i.Status.StartedAt.Time)).To(Equal(30 * time.Minute))
		for _, d := range []string{"3h", "1h", ""} {
			apiserver.Change(ctx, i, func() { i.Spec.Timeout = d })
			expect.Observed(ctx, i)
			want := cfg.Challenge.Timeout
			if d != "" {
				var err error
				want, err = time.ParseDuration(d)
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(i.Status.ExpiresAt.Sub(i.Status.StartedAt.Time)).To(Equal(want), "timeout %q", d)
			Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
		}
		all := bergtest.Versions(ctx, i)
		asked := time.Now()
		apiserver.Change(ctx, i, func() { i.Spec.Timeout = "1s" }) // it is older than that
		Expect(deletedAt(all, i.UID).Sub(asked)).To(BeNumerically("<", limits.Immediately))
		Expect(bergtest.LastOf(all, i.UID).Spec.TerminationReason).To(Equal(bergv1.TerminationTimeout))
		bergtest.Gone(ctx, i)
	})

	It("is deleted within a second of its expiry, also of one that an extension moved and that a restart came before", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "punctual", bergtest.OneContainer)
		plain, extended, restarted := bergtest.Instance(ctx, ns, "punctual"), bergtest.Instance(ctx, ns, "punctual"), bergtest.Instance(ctx, ns, "punctual")
		bergtest.AllRun(ctx, plain, extended, restarted)
		inTime := func(i *bergv1.ChallengeInstance, all <-chan watch.Event) {
			GinkgoHelper()
			late := deletedAt(all, i.UID).Sub(i.Status.StartedAt.Add(parseDuration(i.Spec.Timeout)))
			AddReportEntry("expiry", fmt.Sprintf("%s after expiresAt", late.Round(time.Millisecond)))
			Expect(late).To(And(BeNumerically(">=", 0), BeNumerically("<", limits.Immediately)))
			bergtest.Gone(ctx, i)
		}
		all := bergtest.Versions(ctx, plain)
		expires(ctx, plain, 2*time.Second)
		inTime(plain, all)

		all = bergtest.Versions(ctx, extended)
		expires(ctx, extended, 2*time.Second)
		expires(ctx, extended, 4*time.Second)
		inTime(extended, all)

		all = bergtest.Versions(ctx, restarted)
		expires(ctx, restarted, 4*time.Second)
		inprocess.Pause()()
		inTime(restarted, all)
	})

	It("expires immediately if it passed while no operator ran", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "overdue", bergtest.OneContainer)
		i, longer := bergtest.Instance(ctx, ns, "overdue"), bergtest.Instance(ctx, ns, "overdue", bergtest.WithTimeout("9h"))
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		expect.Reaches(ctx, longer, bergv1.PhaseRunning)
		all := bergtest.Versions(ctx, i)
		inprocess.Instead(clocktesting.NewFakePassiveClock(time.Now().Add(3*time.Hour)), nil, nil)
		began := time.Now()
		Expect(deletedAt(all, i.UID).Sub(began)).To(BeNumerically("<", limits.Immediately))
		bergtest.Gone(ctx, i)
		Expect(bergtest.LastOf(all, i.UID).Spec.TerminationReason).To(Equal(bergv1.TerminationTimeout))
		expect.Reaches(ctx, longer, bergv1.PhaseRunning)
	})

	It("is capped, also for what lives already and for every extension", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "capped", bergtest.OneContainer, bergtest.WithTimeout("9h"))
		capped := inprocess.With(map[string]string{"CHALLENGE_MAX_LIFETIME": "1h"})
		stopCapped := inprocess.Instead(clock.RealClock{}, capped, nil)
		lives := func(d time.Duration) {
			GinkgoHelper()
			expect.Becomes(ctx, i, func(g Gomega) {
				g.Expect(i.Status.ExpiresAt.Sub(i.Status.StartedAt.Time)).To(Equal(d))
				g.Expect(i.Status.ObservedGeneration).To(Equal(i.Generation))
			})
		}
		lives(time.Hour)
		for timeout, want := range map[string]time.Duration{"12h": time.Hour, "30m": 30 * time.Minute, "": time.Hour} {
			apiserver.Change(ctx, i, func() { i.Spec.Timeout = timeout })
			lives(want)
		}

		By("the cap is reached")
		stopCapped()
		inprocess.Instead(clocktesting.NewFakePassiveClock(i.Status.StartedAt.Add(time.Hour)), capped, nil)
		bergtest.Gone(ctx, i)
	})

	It("is extended by who comes at the last moment", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "moment", bergtest.OneContainer)
		// The operator decides, and first writes why.
		isExtendedBefore(ctx, i, http.MethodPatch)
		Expect(i.Spec.TerminationReason).To(BeEmpty())
	})

	It("is counted once when it expires, no matter what fails", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "answered", bergtest.OneContainer)
		const over = 3
		var all []*bergv1.ChallengeInstance
		for range over {
			all = append(all, bergtest.Instance(ctx, ns, "answered"))
		}
		deleted := bergtest.Instance(ctx, ns, "answered", bergtest.WithTimeout("9h"))
		for _, i := range append(all, deleted) {
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
		}
		before := inprocess.Metric("berg_challengeinstance_timeouts_total")
		// The answer to the first request of each kind about each instance is lost.
		var seen sync.Map
		inprocess.Instead(clocktesting.NewFakePassiveClock(time.Now().Add(3*time.Hour)), nil, transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if r.Method == http.MethodGet || !strings.Contains(r.URL.Path, "/challengeinstances/") || strings.HasSuffix(r.URL.Path, "/status") {
				return response, err
			}
			if _, again := seen.LoadOrStore(r.Method+r.URL.Path, true); !again && err == nil {
				_ = response.Body.Close()
				return nil, errors.New("the answer is lost")
			}
			return response, err
		}))
		Expect(k8s.Delete(ctx, deleted)).To(Succeed())
		for _, i := range append(all, deleted) {
			bergtest.Gone(ctx, i)
		}
		Expect(inprocess.Metric("berg_challengeinstance_timeouts_total") - before).To(BeEquivalentTo(over))
	})
})

var _ = Describe("spec.terminationReason", func() {
	It("terminates a live instance in every phase, and stays its reason", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "runs", bergtest.OneContainer)
		bergtest.Challenge(ctx, ns, "starts", bergtest.NeverReady)
		running, starting, failed := bergtest.Instance(ctx, ns, "runs"), bergtest.Instance(ctx, ns, "starts"), bergtest.Instance(ctx, ns, "missing")
		expect.Reaches(ctx, running, bergv1.PhaseRunning)
		expect.Reaches(ctx, starting, bergv1.PhaseStarting)
		expect.Reaches(ctx, failed, bergv1.PhaseFailed)
		pending := bergtest.Instance(ctx, ns, "runs", bergtest.OwnedLike(running))
		bergtest.ExpectWaitingForOwner(ctx, pending)
		for _, i := range []*bergv1.ChallengeInstance{pending, running, starting, failed} {
			all := bergtest.Versions(ctx, i)
			reason := bergv1.TerminationAdmin
			if i == running {
				reason = bergv1.TerminationUserRequest
			}
			apiserver.Change(ctx, i, func() { i.Spec.TerminationReason = reason })
			expect.Gone(ctx, i)
			last := bergtest.LastOf(all, i.UID)
			Expect(last.Spec.TerminationReason).To(Equal(reason))
			Expect(last.Status.Phase).To(Equal(bergv1.PhaseTerminated))
		}
		bergtest.Gone(ctx, running)
		bergtest.Gone(ctx, starting)
	})

	It("terminates one that was created with it before anything is made", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "stillborn", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "stillborn", func(i *bergv1.ChallengeInstance) { i.Spec.TerminationReason = bergv1.TerminationUserRequest })
		bergtest.Gone(ctx, i)
	})
})

// crowdTimeout is how long a busy machine may take to start them, or to delete them.
var crowdTimeout = limits.Scaled(8 * time.Minute)

// make expiring lets a thousand expire. Fewer, in every run, still are several times as many as the
// operator has workers.
var _ = Describe("Many instances that expire at the same second", func() {
	It("are all deleted, and none too early", func(ctx context.Context) {
		crowd := bulk.Number("EXPIRING", 250)
		Expect(crowd).To(BeNumerically(">", 2*bulk.Workers()), "EXPIRING: too few to wait for each other")
		ns := bergtest.Namespace(ctx)
		bare := bareClient(ctx, crowd)

		By("starting them; their namespaces are refused, which take minutes to make and to delete")
		bergtest.RefuseWhere(ctx, bergv1.LabelChallengeNamespace, ns, "", "namespaces", "CREATE")
		bergtest.Challenge(ctx, ns, "crowd", `containers: [{hostname: a, image: "example.com/a:1"}]`)
		all := make([]*bergv1.ChallengeInstance, crowd)
		bulk.Each(len(all), func(n int) { all[n] = bergtest.Instance(ctx, ns, "crowd") })
		Eventually(func(g Gomega) {
			var list bergv1.ChallengeInstanceList
			g.Expect(k8s.List(ctx, &list, client.InNamespace(ns))).To(Succeed())
			for n := range list.Items {
				g.Expect(list.Items[n].Status.ExpiresAt).NotTo(BeNil())
				all[n] = &list.Items[n]
			}
		}).WithTimeout(crowdTimeout).WithPolling(time.Second).Should(Succeed())

		By("letting all of them expire at one moment")
		// Time for one request for each, where a bare client needed two and had the
		// API server to itself, on a machine that may have become busy.
		moment := time.Now().Add(45*time.Second + 6*bare).Truncate(time.Second)
		bulk.Each(len(all), func(n int) {
			apiserver.Change(ctx, all[n], func() {
				all[n].Spec.Timeout = fmt.Sprintf("%ds", int(moment.Sub(all[n].Status.StartedAt.Time).Seconds()))
			})
		})
		w := apiserver.Changes(ctx, &bergv1.ChallengeInstanceList{}, ns)
		Expect(time.Now()).To(BeTemporally("<", moment), "setting the timeouts took longer than they last")

		ended := map[types.UID]time.Duration{}
		for len(ended) < crowd {
			var e watch.Event
			select {
			case event, open := <-w:
				Expect(open).To(BeTrue(), "the watch ended")
				e = event
			case <-ctx.Done():
				Fail(fmt.Sprintf("%d of %d were deleted", len(ended), crowd))
			}
			i, ok := e.Object.(*bergv1.ChallengeInstance)
			if !ok || i.DeletionTimestamp == nil || ended[i.UID] != 0 {
				continue
			}
			Expect(i.Spec.TerminationReason).To(Equal(bergv1.TerminationTimeout))
			ended[i.UID] = time.Since(moment)
		}
		late := slices.Sorted(maps.Values(ended))
		Expect(late[0]).To(BeNumerically(">=", 0), "one was deleted early")
		AddReportEntry("expiry", fmt.Sprintf(
			"%d instances: the deletion of the first was seen %s after the moment, of half of them %s, of the last %s; a bare client needs %s for the same requests",
			crowd, late[0].Round(time.Millisecond), late[crowd/2].Round(time.Millisecond), late[crowd-1].Round(time.Millisecond), bare.Round(time.Millisecond)))
		// How long it may take compared with a bare client is for test/measure/load to say, which
		// has the machine to itself.

		By("nothing is left")
		Eventually(func(g Gomega) {
			var list bergv1.ChallengeInstanceList
			g.Expect(k8s.List(ctx, &list, client.InNamespace(ns))).To(Succeed())
			g.Expect(list.Items).To(BeEmpty())
		}).WithTimeout(crowdTimeout).WithPolling(time.Second).Should(Succeed())
	}, SpecTimeout(limits.Scaled(25*time.Minute)))
})

// bareClient is how long a client needs that only sends what the operator has to,
// for as many resources and as many at a time: the reason, and the deletion.
func bareClient(ctx context.Context, crowd int) time.Duration {
	GinkgoHelper()
	resume := inprocess.Pause()
	ns := bergtest.Namespace(ctx)
	all := make([]*bergv1.ChallengeInstance, crowd)
	bulk.Each(len(all), func(n int) {
		all[n] = bergtest.Instance(ctx, ns, "none", func(i *bergv1.ChallengeInstance) { i.Finalizers = []string{"example.com/hold"} })
	})
	began := time.Now()
	bulk.Each(len(all), func(n int) {
		apiserver.Change(ctx, all[n], func() { all[n].Spec.TerminationReason = bergv1.TerminationTimeout })
		Expect(k8s.Delete(ctx, all[n], client.Preconditions{UID: ptr.To(all[n].UID)})).To(Succeed())
	})
	took := time.Since(began)
	bulk.Each(len(all), func(n int) { apiserver.Change(ctx, all[n], func() { all[n].Finalizers = nil }) })
	resume()
	return took
}

func parseDuration(text string) time.Duration {
	GinkgoHelper()
	d, err := time.ParseDuration(text)
	Expect(err).NotTo(HaveOccurred())
	return d
}

// expires sets the timeout of an instance so that it is over after a while.
func expires(ctx context.Context, i *bergv1.ChallengeInstance, after time.Duration) {
	GinkgoHelper()
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
	lives := (time.Since(i.Status.StartedAt.Time) + after).Round(time.Second)
	apiserver.Change(ctx, i, func() { i.Spec.Timeout = fmt.Sprintf("%ds", int(lives.Seconds())) })
}

// deletedAt waits until the deletion of an instance is asked for, and returns when
// that was seen.
func deletedAt(all <-chan watch.Event, uid types.UID) time.Time {
	GinkgoHelper()
	for {
		var e watch.Event
		Eventually(all).Should(Receive(&e))
		if i, ok := e.Object.(*bergv1.ChallengeInstance); ok && i.UID == uid && (i.DeletionTimestamp != nil || e.Type == watch.Deleted) {
			return time.Now()
		}
	}
}

// isExtendedBefore runs an operator for which the time of an instance is over, and lets the
// player extend the instance at the last moment: when the operator has decided to end it, right
// before its first request of a method. The instance must live on.
func isExtendedBefore(ctx context.Context, i *bergv1.ChallengeInstance, method string) {
	GinkgoHelper()
	var once sync.Once
	name := i.Name // i is read again while the operator runs
	extended := make(chan struct{})
	inprocess.Instead(clocktesting.NewFakePassiveClock(time.Now().Add(3*time.Hour)), nil, transport.Showing(func(r *http.Request) {
		if r.Method == method && strings.HasSuffix(r.URL.Path, "/challengeinstances/"+name) {
			once.Do(func() {
				defer GinkgoRecover()
				defer close(extended)
				apiserver.Change(ctx, i, func() { i.Spec.Timeout = "9h" })
			})
		}
	}))
	Eventually(extended).Should(BeClosed(), "no %s is tried", method)
	expect.Observed(ctx, i)
	Expect(i.DeletionTimestamp).To(BeNil())
	Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
	Expect(i.Status.ExpiresAt.Sub(i.Status.StartedAt.Time)).To(Equal(9 * time.Hour))
}
