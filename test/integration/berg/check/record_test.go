package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/bulk"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// recordsNamespace is that of config/berg/record.
const recordsNamespace = "berg-records"

// recording are the variables of an operator that keeps records for an hour.
func recording(more ...string) map[string]string {
	env := map[string]string{"RECORD_RETENTION": "1h"}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

var _ = Describe("A record", Label("record"), Ordered, func() {
	BeforeAll(func(ctx context.Context) { allowRecords(ctx) })

	var ns string
	BeforeEach(func(ctx context.Context) {
		bergtest.NoneLeft(ctx) // those of other specs would leave records here
		Expect(k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstanceRecord{}, client.InNamespace(recordsNamespace))).To(Succeed())
		ns = bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
	})

	It("is left of an instance that ran: why it ended, when what happened, and its containers", func(ctx context.Context) {
		inprocess.Restart(recording(), nil)
		written := inprocess.Metric("berg_challengeinstancerecord_written_total")
		i := bergtest.Running(ctx, ns, "web")
		bergtest.Delete(ctx, i)

		r := recordOf(ctx, i)
		Expect(r.Spec.Reason).To(BeEquivalentTo(bergv1.TerminationUserRequest))
		Expect(r.Spec.Phase).To(Equal(bergv1.PhaseRunning))
		Expect(r.Spec.Problem).To(BeNil())
		Expect(r.Spec.Instance).To(Equal(bergv1.RecordedInstance{Namespace: ns, Name: i.Name, UID: string(i.UID), InstanceID: i.Status.InstanceID}))
		Expect(r.Spec.ChallengeRef).To(Equal(bergv1.ChallengeReference{Namespace: ns, Name: "web"}))
		var moments []string
		for _, m := range r.Spec.Timeline {
			moments = append(moments, m.Moment)
		}
		Expect(moments).To(ConsistOf("Created", "Started", "NamespaceCreated", "Running", "Ended"))
		Expect(r.Spec.Containers).To(HaveLen(1))
		c := r.Spec.Containers[0]
		Expect(c.Name).To(Equal("web"))
		Expect(c.State).To(Equal("Running"))
		Expect(c.Log+c.LogMissing).NotTo(BeEmpty(), "simulated nodes have no logs, and the record says so")
		Expect(r.Labels).To(HaveKeyWithValue(bergv1.LabelOwnerID, i.Spec.OwnerID))
		text, err := json.Marshal(r)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).NotTo(ContainSubstring(i.Spec.Flag))
		Expect(inprocess.Metric("berg_challengeinstancerecord_written_total") - written).To(BeEquivalentTo(1))
		Eventually(func() float64 { return inprocess.Metric("berg_challengeinstancerecord_stored") }).Should(BeEquivalentTo(1))

		By("deleting it when its time is over, which may have been changed")
		apiserver.Change(ctx, r, func() {
			r.Annotations[bergv1.AnnotationDeleteAt] = time.Now().Add(3 * time.Second).UTC().Format(time.RFC3339)
		})
		expect.GoneWithin(ctx, r, time.Minute)
	})

	It("has no log without the policy that limits the right to read it, which the operator then does not give itself", func(ctx context.Context) {
		restore := apiserver.RemovePolicy(ctx, "berg-operator-berg-record-logs")
		var bound atomic.Int64
		inprocess.Restart(recording(), transport.Showing(func(r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/rolebindings") {
				bound.Add(1)
			}
		}))
		end := func() *bergv1.ChallengeInstanceRecord {
			i := bergtest.Running(ctx, ns, "web")
			bergtest.Delete(ctx, i)
			return recordOf(ctx, i)
		}
		Expect(end().Spec.Containers[0].LogMissing).To(And(ContainSubstring("berg-operator-berg-record-logs"), ContainSubstring("kubectl apply -k config/berg/record")))
		Expect(bound.Load()).To(BeZero())
		restore()
		Eventually(func() string { return end().Spec.Containers[0].LogMissing }).ShouldNot(ContainSubstring("berg-operator-berg-record-logs"))
		Expect(bound.Load()).NotTo(BeZero())
	})

	It("tells why, of all that ends", func(ctx context.Context) {
		inprocess.Restart(recording("CHALLENGE_WITHDRAWAL_POLICY", "Stop"), nil)
		withdrawn := bergtest.Challenge(ctx, ns, "withdrawn", bergtest.OneContainer)
		expired, asked := bergtest.Instance(ctx, ns, "web"), bergtest.Instance(ctx, ns, "web")
		left, failed := bergtest.Instance(ctx, ns, "withdrawn"), bergtest.Instance(ctx, ns, "missing")
		bergtest.AllRun(ctx, expired, asked, left)
		expect.Reaches(ctx, failed, bergv1.PhaseFailed)
		apiserver.Change(ctx, expired, func() { expired.Spec.Timeout = "1s" })
		apiserver.Change(ctx, asked, func() { asked.Spec.TerminationReason = bergv1.TerminationAdmin })
		Expect(k8s.Delete(ctx, withdrawn)).To(Succeed())
		Expect(k8s.Delete(ctx, failed)).To(Succeed())
		for i, want := range map[*bergv1.ChallengeInstance]bergv1.EndReason{
			expired: "Timeout", asked: "AdminTermination", left: bergv1.EndChallengeDeleted, failed: "UserRequest",
		} {
			expect.Gone(ctx, i)
			r := recordOf(ctx, i)
			Expect(r.Spec.Reason).To(Equal(want), i.Name)
			if i == failed {
				Expect(r.Spec.Phase).To(Equal(bergv1.PhaseFailed))
				Expect(r.Spec.Problem).To(HaveField("Reason", bergv1.ReasonChallengeMissing))
				Expect(r.Spec.Containers).To(BeEmpty())
			}
		}
	})

	It("goes when there are too many, the oldest first, and when an operator finds it over", func(ctx context.Context) {
		inprocess.Restart(recording("RECORD_LIMIT", "2"), nil)
		var all []*bergv1.ChallengeInstance
		for range 3 {
			i := bergtest.Instance(ctx, ns, "missing")
			expect.Reaches(ctx, i, bergv1.PhaseFailed)
			expect.Deleted(ctx, i)
			all = append(all, i)
			if len(all) < 3 { // what creationTimestamp tells apart are seconds
				made := recordOf(ctx, i).CreationTimestamp.Time
				Eventually(func() time.Time { return time.Now().Truncate(time.Second) }).Should(BeTemporally(">", made))
			}
		}
		Eventually(func() []string { return recordNames(ctx) }).Should(ConsistOf(string(all[1].UID), string(all[2].UID)))

		By("leaving those of others alone")
		foreign := recordOf(ctx, all[2]).DeepCopy()
		foreign.ObjectMeta = metav1.ObjectMeta{Namespace: recordsNamespace, Name: "foreign"}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())
		inprocess.Instead(clocktesting.NewFakePassiveClock(time.Now().Add(2*time.Hour)), inprocess.With(recording()), nil)
		Eventually(func() []string { return recordNames(ctx) }).Should(ConsistOf("foreign"))
	})

	It("keeps no instance that it cannot be written for", func(ctx context.Context) {
		apiserver.Deny(ctx, apiserver.Denial{
			Name: "no-records", Group: bergv1.GroupVersion.Group, Resources: []string{"challengeinstancerecords"}, Operation: "CREATE",
		}, func() error {
			r := &bergv1.ChallengeInstanceRecord{ObjectMeta: metav1.ObjectMeta{Namespace: recordsNamespace, Name: "probe"}}
			bergtest.Parse(`{instance: {namespace: a, name: a, uid: a}, challengeRef: {name: a}, ownerId: a, reason: Timeout, endedAt: "2026-07-11T12:00:00Z"}`, &r.Spec)
			return k8s.Create(ctx, r, client.DryRunAll)
		})
		inprocess.Restart(recording(), nil)
		before := inprocess.Metric("berg_challengeinstancerecord_refused_total")
		i := bergtest.Running(ctx, ns, "web")
		bergtest.Delete(ctx, i)
		Eventually(func() float64 { return inprocess.Metric("berg_challengeinstancerecord_refused_total") - before }).Should(BeEquivalentTo(1))
		Expect(recordNames(ctx)).To(BeEmpty())
	})

	It("is written once, wherever the operator is killed, and whichever answer is lost", func(ctx context.Context) {
		for killedAfter := int64(1); ; killedAfter++ {
			Expect(killedAfter).To(BeNumerically("<", 30), "an end has that many writes")
			By(fmt.Sprintf("killing it after %d writes", killedAfter))
			inprocess.Restart(recording(), nil)
			i := bergtest.Running(ctx, ns, "web")
			inprocess.Pause()
			cut := &cutEnd{after: killedAfter}
			stop := inprocess.Instead(clock.RealClock{}, inprocess.With(recording()), cut.wrap)
			Expect(k8s.Delete(ctx, i)).To(Succeed())
			Eventually(func() bool {
				return cut.happened.Load() || apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)) && len(recordNames(ctx)) > 0
			}).Should(BeTrue())
			stop()
			happened := cut.happened.Load()
			inprocess.Restart(recording(), nil)
			bergtest.Gone(ctx, i)
			r := recordOf(ctx, i)
			Expect(r.Generation).To(BeEquivalentTo(1))
			Expect(k8s.Delete(ctx, r)).To(Succeed())
			if !happened {
				return
			}
		}
	}, SpecTimeout(limits.Scaled(10*time.Minute)))

	It("is asked for again when its answer was lost", func(ctx context.Context) {
		var lost atomic.Int64
		inprocess.Restart(recording(), transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/challengeinstancerecords") && err == nil && lost.Add(1) <= 2 {
				_ = response.Body.Close()
				return nil, errors.New("the answer is lost")
			}
			return response, err
		}))
		i := bergtest.Instance(ctx, ns, "missing")
		expect.Reaches(ctx, i, bergv1.PhaseFailed)
		expect.Deleted(ctx, i)
		Eventually(lost.Load).Should(BeEquivalentTo(3))
		Expect(recordNames(ctx)).To(ConsistOf(string(i.UID)))
	})

	// An API server that has just started knows of no rights for a moment.
	It("is offered again when it was refused at first", func(ctx context.Context) {
		var refused atomic.Int64
		inprocess.Restart(recording(), transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/challengeinstancerecords") && refused.Add(1) <= 2 {
				return transport.Refusal(r, http.StatusForbidden, metav1.StatusReasonForbidden, "no request is allowed yet"), nil
			}
			return next.RoundTrip(r)
		}))
		i := bergtest.Instance(ctx, ns, "missing")
		expect.Reaches(ctx, i, bergv1.PhaseFailed)
		expect.Deleted(ctx, i)
		recordOf(ctx, i)
		Expect(refused.Load()).To(BeEquivalentTo(3))
	})

	It("is left of each of many that end together, and delays none of them", func(ctx context.Context) {
		inprocess.Restart(recording(), nil)
		all := bergtest.Several(ctx, ns, "web", 60)
		bergtest.AllRun(ctx, all...)
		Expect(k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns))).To(Succeed())
		for _, i := range all {
			bergtest.Gone(ctx, i)
			recordOf(ctx, i)
		}
		AddReportEntry("records", fmt.Sprintf("%v of %d were not looked at, because too many ended together",
			inprocess.Metric("berg_challengeinstancerecord_crowded_total"), len(all)))
	})
})

var _ = Describe("An operator without RECORD_RETENTION", Label("record"), func() {
	It("asks nothing about records, and binds nothing", func(ctx context.Context) {
		asked := bergtest.RequestsOfALife(ctx, nil, func(r *http.Request) bool {
			return strings.Contains(r.URL.Path, "challengeinstancerecords") || strings.HasSuffix(r.URL.Path, "/log") ||
				strings.Contains(r.URL.Path, "/challenge-") && strings.HasSuffix(r.URL.Path, "/rolebindings")
		})
		Expect(asked).To(BeZero())
	})

	It("has no right that records need, and does not start with it before it has them", func(ctx context.Context) {
		inprocess.Pause()
		rc := rest.CopyConfig(restConfig)
		rc.Impersonate = rest.ImpersonationConfig{UserName: apiserver.OperatorUser}
		p, enabled := inprocess.Load(inprocess.With(recording("RECORD_NAMESPACE", "elsewhere")), families.All()...)
		_, err := operator.New(ctx, rc, p, enabled, operator.Options{SkipNameValidation: true, Clock: clock.RealClock{}})
		Expect(err).To(MatchError(And(ContainSubstring("config/berg/record"), ContainSubstring("elsewhere"))))
	})
})

// make record-pace compares more of them, on a machine that does nothing else.
var _ = Describe("The pace of deletions", Label("record"), func() {
	It("is that of an operator that keeps no records", func(ctx context.Context) {
		n := bulk.Number("RECORD_PACE", 12)
		allowRecords(ctx)
		ns := bergtest.Publish(ctx, "web", bergtest.OneContainer)
		took := map[bool][]time.Duration{}
		const rounds = 4
		for round := range 2 * rounds {
			with := round%2 == 1
			env := map[string]string{}
			if with {
				env = recording()
			}
			inprocess.Restart(env, nil)
			some := deletionTimes(ctx, ns, max(1, n/rounds))
			AddReportEntry("round", fmt.Sprintf("records %t: p50 %s, slowest %s", with,
				quantile(some, 0.5).Round(time.Millisecond), slices.Max(some).Round(time.Millisecond)))
			took[with] = append(took[with], some...)
		}
		for _, q := range []float64{0.5, 0.99} {
			without, with := quantile(took[false], q), quantile(took[true], q)
			AddReportEntry("deletion", fmt.Sprintf("p%v of %d: %s without records, %s with, ratio %.3f",
				100*q, len(took[true]), without.Round(time.Millisecond), with.Round(time.Millisecond), float64(with)/float64(without)))
		}
		if os.Getenv("RECORD_PACE") != "" {
			Expect(float64(quantile(took[true], 0.99)) / float64(quantile(took[false], 0.99))).To(BeNumerically("<=", 1.05))
		}
	}, SpecTimeout(limits.Scaled(50*time.Minute)))
})

// deletionTimes returns how long each of some instances took from its deletion until it was gone,
// eight at a time.
func deletionTimes(ctx context.Context, ns string, n int) []time.Duration {
	GinkgoHelper()
	all := bergtest.Several(ctx, ns, "web", n)
	bergtest.AllRun(ctx, all...)
	took := make([]time.Duration, n)
	turns := make(chan struct{}, 8)
	var group sync.WaitGroup
	for k, i := range all {
		turns <- struct{}{}
		group.Go(func() {
			defer GinkgoRecover()
			defer func() { <-turns }()
			w, err := k8s.Watch(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": i.Name})
			Expect(err).NotTo(HaveOccurred())
			defer w.Stop()
			began := time.Now()
			Expect(k8s.Delete(ctx, i)).To(Succeed())
			for e := range w.ResultChan() {
				if e.Type == "DELETED" {
					took[k] = time.Since(began)
					return
				}
			}
			Fail("the watch ended")
		})
	}
	group.Wait()
	return took
}

func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(math.Ceil(q*float64(len(sorted))))-1]
}

// allowRecords gives the operator the rights of config/berg/record until the spec ends.
func allowRecords(ctx context.Context) {
	GinkgoHelper()
	Expect(installed.Folder(ctx, k8s, "config/berg/record", "integration")).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(k8s.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berg-operator-berg-record"}})).To(Succeed())
		Expect(k8s.Delete(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: recordsNamespace, Name: "berg-operator-berg-record"}})).To(Succeed())
	})
	for _, verb := range []string{"create", "list", "watch", "delete"} { // the API server goes by it a moment later
		Eventually(func() bool {
			return apiserver.May(ctx, apiserver.OperatorUser, authorizationv1.ResourceAttributes{
				Namespace: recordsNamespace, Group: bergv1.GroupVersion.Group, Resource: "challengeinstancerecords", Verb: verb,
			})
		}).Should(BeTrue())
	}
	Eventually(func() bool {
		return apiserver.May(ctx, apiserver.OperatorUser, authorizationv1.ResourceAttributes{
			Group: rbacv1.GroupName, Resource: "clusterroles", Name: "berg-operator-berg-record-logs", Verb: "bind",
		})
	}).Should(BeTrue())
}

// cutEnd kills an operator after some writes that the end of an instance takes.
type cutEnd struct {
	after    int64
	writes   atomic.Int64
	happened atomic.Bool
}

func (c *cutEnd) wrap(next http.RoundTripper) http.RoundTripper {
	return transport.Func(func(r *http.Request) (*http.Response, error) {
		about := strings.Contains(r.URL.Path, "/challengeinstances/") || strings.Contains(r.URL.Path, "/namespaces/challenge-") ||
			strings.HasSuffix(r.URL.Path, "/challengeinstancerecords")
		if r.Method != http.MethodGet && (c.happened.Load() || about && c.writes.Add(1) > c.after) {
			c.happened.Store(true)
			return nil, errCut
		}
		return next.RoundTrip(r)
	})
}

// recordOf waits for the record of an instance.
func recordOf(ctx context.Context, i *bergv1.ChallengeInstance) *bergv1.ChallengeInstanceRecord {
	GinkgoHelper()
	r := &bergv1.ChallengeInstanceRecord{}
	Eventually(func() error {
		return k8s.Get(ctx, client.ObjectKey{Namespace: recordsNamespace, Name: string(i.UID)}, r)
	}).Should(Succeed(), i.Name)
	return r
}

func recordNames(ctx context.Context) []string {
	GinkgoHelper()
	return apiserver.Names(ctx, &bergv1.ChallengeInstanceRecordList{}, client.InNamespace(recordsNamespace))
}
