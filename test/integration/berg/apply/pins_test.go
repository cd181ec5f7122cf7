package apply

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var _ = Describe("A default timeout that is changed while an instance runs", func() {
	It("counts for those that start after it, for the others when they roll out, and the cap for all", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "pinned", bergtest.OneContainer)
		i, own := bergtest.Instance(ctx, ns, "pinned"), bergtest.Instance(ctx, ns, "pinned", bergtest.WithTimeout("30m"))
		for _, each := range []*bergv1.ChallengeInstance{i, own} {
			expect.Reaches(ctx, each, bergv1.PhaseRunning)
		}
		was := cfg.Challenge.Timeout
		inprocess.Pause()
		lives := func(i *bergv1.ChallengeInstance, d time.Duration) {
			GinkgoHelper()
			expect.Becomes(ctx, i, func(g Gomega) {
				g.Expect(i.Status.ExpiresAt.Sub(i.Status.StartedAt.Time)).To(Equal(d))
			})
		}
		inprocess.Restart(map[string]string{"CHALLENGE_INSTANCE_TIMEOUT": "5h"}, nil)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonConfigurationChanged)
		lives(i, was)
		expect.Shows(ctx, own, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		later := bergtest.Instance(ctx, ns, "pinned")
		expect.Reaches(ctx, later, bergv1.PhaseRunning)
		lives(later, 5*time.Hour)

		By("one that says how long itself follows that, and the default of its start when it does not any more")
		apiserver.Change(ctx, i, func() { i.Spec.Timeout = "40m" })
		lives(i, 40*time.Minute)
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		apiserver.Change(ctx, i, func() { i.Spec.Timeout = "" })
		lives(i, was)

		By("a rollout adopts it")
		bergtest.RollOut(ctx, i, "1")
		expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		lives(i, 5*time.Hour)

		By("the cap is the administrator's")
		inprocess.Restart(map[string]string{"CHALLENGE_INSTANCE_TIMEOUT": "5h", "CHALLENGE_MAX_LIFETIME": "1h"}, nil)
		for _, each := range []*bergv1.ChallengeInstance{i, later} {
			lives(each, time.Hour)
			expect.Shows(ctx, each, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		}
		lives(own, 30*time.Minute)
	})
})

var _ = Describe("What an instance was started with", func() {
	It("is what its Challenge says, in any notation", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		for name, spec := range map[string]string{
			"nothing":   `{"containers":[{"hostname":"a","image":"i","environment":{"A":null,"B":"","C":"x"}}]}`,
			"numbers":   `{"containers":[{"hostname":"a","image":"i","environment":{"A":1e3,"B":1.0,"C":-0.0,"D":99999999999999999999,"E":1e-7,"F":true,"G":1e21}}]}`,
			"texts":     `{"containers":[{"hostname":"a","image":"i","environment":{"A":"<&>\u2028","B":"ä","C":"null"}}]}`,
			"empty":     `{"containers":[{"hostname":"a","image":"i","environment":{},"ports":[],"additionalCapabilities":[],"resourceLimits":{}}],"allowOutboundTraffic":false}`,
			"nulls":     `{"containers":[{"hostname":"a","image":"i","environment":null,"ports":[{"port":1,"name":null,"type":null,"protocol":null}],"resourceLimits":{"cpu":null,"memory":1e9},"resourceRequests":null,"dynamicFlag":{"env":null,"content":{"path":"/f","mode":null}}}]}`,
			"probes":    `{"containers":[{"hostname":"a","image":"i","readinessProbe":{"grpc":{"port":80,"service":null},"periodSeconds":null},"livenessProbe":{"httpGet":{"port":80,"httpHeaders":[],"path":null},"terminationGracePeriodSeconds":null}}]}`,
			"amounts":   `{"containers":[{"hostname":"a","image":"i","resourceLimits":{"cpu":"0.50","memory":"100mi"},"resourceRequests":{"cpu":"1e-1","memory":"0.05Gi"}}]}`,
			"bandwidth": `{"containers":[{"hostname":"a","image":"i","egressBandwidth":"1.50M","ingressBandwidth":null,"runtimeClassName":null}]}`,
		} {
			By(name)
			c := rawChallenge(ns, spec)
			Expect(k8s.Create(ctx, c)).To(Succeed())
			i := bergtest.Running(ctx, ns, c.GetName())
			expect.Shows(ctx, i, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
			if name == "nothing" {
				Expect(bergtest.VariablesOf(ctx, i.Status.Namespace, "a")).To(And(HaveKeyWithValue("A", ""), HaveKeyWithValue("B", ""), HaveKeyWithValue("C", "x")))
			}
			Expect(k8s.Delete(ctx, i)).To(Succeed())
		}
	})
})

var _ = Describe("A flag that a variable cannot hold", func() {
	It("is refused, naming spec.flag, before anything is made; a file takes it", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "variable", `containers: [{hostname: a, image: i}, {hostname: web, image: i, dynamicFlag: {env: {name: FLAG}}}]`)
		i := bergtest.Instance(ctx, ns, "variable", func(i *bergv1.ChallengeInstance) { i.Spec.Flag = "flag{a\x00b}" })
		expect.Reaches(ctx, i, bergv1.PhaseFailed)
		expect.Shows(ctx, i, bergv1.ConditionFlagValidation, metav1.ConditionFalse, bergv1.ReasonInvalidFlag)
		Expect(expect.Conditions(i)).To(And(ContainSubstring("spec.flag"), ContainSubstring("NUL"), Not(ContainSubstring("flag{a"))))
		Expect(bergtest.NamespaceExists(ctx, i)).To(BeFalse())
		expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonInvalidFlag)
		bergtest.Respecify(ctx, c, `containers: [{hostname: web, image: i, dynamicFlag: {content: {path: /flag}}}]`)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
	})
})

var _ = Describe("A timeout that is too long", func() {
	It("is refused with the longest in hours; the longest lives", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "longest", bergtest.OneContainer)
		for _, long := range []string{"9999999999h", "2562048h", "2562047h60m", "99999999999m", "99999999999999s", "2562047h47m17s"} {
			i := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "long-"}}
			i.Spec = bergv1.ChallengeInstanceSpec{ChallengeRef: bergv1.ChallengeReference{Name: "longest"}, OwnerID: strings.Repeat("0", 8) + "-0000-0000-0000-000000000000", Timeout: long}
			err := k8s.Create(ctx, i, client.DryRunAll)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%s: %v", long, err)
			Expect(err.Error()).To(And(ContainSubstring("spec.timeout"), ContainSubstring("at most 2562047h"), Not(ContainSubstring("google")), Not(ContainSubstring("longer than zero"))), long)
		}
		for _, d := range []string{"2562047h", "2562047h47m16s", "0002562047h", "153722867m", "9223372036s", "1s"} {
			i := bergtest.Instance(ctx, ns, "none", bergtest.WithTimeout(d))
			Expect(i.Spec.Timeout).To(Equal(d))
			Expect(k8s.Delete(ctx, i)).To(Succeed())
		}
		i := bergtest.Running(ctx, ns, "longest", bergtest.WithTimeout("2562047h"))
		Expect(i.Status.ExpiresAt.Year()).To(BeNumerically(">", 2300))
	})
})
