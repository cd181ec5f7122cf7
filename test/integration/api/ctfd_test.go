package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// oneFlag has a flag for each instance.
const oneFlag = `
flag: flag{secret}
dynamicFlagMode: suffix
containers:
- hostname: web
  image: example.com/web:1
  ports:
  - {name: web, port: 80, type: publicPort}
  dynamicFlag: {env: {name: FLAG}}
`

// ctfd is what the plugin of CTFd does, written from the table of its calls.
type ctfd struct{ url string }

func (c ctfd) call(ctx context.Context, method, path, body string) answer {
	GinkgoHelper()
	return call(ctx, method, c.url+path, body, func(r *http.Request) { r.SetBasicAuth("ctfd", tokensOf["chall-manager"]) })
}

func (c ctfd) register(ctx context.Context, id, scenario, timeout string) answer {
	GinkgoHelper()
	return c.call(ctx, "POST", "/api/v1/challenge", fmt.Sprintf(
		`{"id":%q,"scenario":%q,"timeout":%s,"until":null,"additional":{},"min":0,"max":0}`, id, scenario, timeout))
}

func (c ctfd) boot(ctx context.Context, id, source string) answer {
	GinkgoHelper()
	return c.call(ctx, "POST", "/api/v1/instance", fmt.Sprintf(`{"challengeId":%q,"sourceId":%q}`, id, source))
}

func (c ctfd) results(a answer) (all []map[string]any) {
	GinkgoHelper()
	Expect(a.Status).To(Equal(200), a.Body)
	for line := range strings.Lines(a.Body) {
		var one struct{ Result map[string]any }
		Expect(json.Unmarshal([]byte(line), &one)).To(Succeed(), line)
		all = append(all, one.Result)
	}
	return all
}

// refuses expects an error as the plugin reads it.
func refuses(a answer, status, code int, words string) {
	GinkgoHelper()
	Expect(a.Status).To(Equal(status), a.Body)
	Expect(a.json()).To(And(HaveKeyWithValue("code", BeEquivalentTo(code)), HaveKeyWithValue("message", ContainSubstring(words)), HaveKey("details")))
}

func live(ctx context.Context, ns string) (all []bergv1.ChallengeInstance) {
	GinkgoHelper()
	var list bergv1.ChallengeInstanceList
	Expect(k8s.List(ctx, &list, client.InNamespace(ns))).To(Succeed())
	for _, i := range list.Items {
		if i.DeletionTimestamp == nil && i.Spec.TerminationReason == "" {
			all = append(all, i)
		}
	}
	return all
}

var _ = Describe("CTFd", func() {
	It("reads through a replica what it wrote through it", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		c := ctfd{begin(ctx, ns, 1, nil).replicas[0].http.URL}
		const rounds = 20 // each of them failed now and then while the answers did not wait for the cache
		for n := range rounds {
			id := fmt.Sprint(n)
			registered := c.register(ctx, id, "guestbook", `"600s"`)
			Expect(registered.Status).To(Equal(200), registered.Body)
			Expect(c.results(c.call(ctx, "GET", "/api/v1/challenge", ""))).To(HaveLen(1))
			changed := c.call(ctx, "PATCH", "/api/v1/challenge/"+id, `{"timeout":"900s","updateMask":"timeout"}`)
			Expect(changed.Status).To(Equal(200), changed.Body)
			Expect(c.call(ctx, "GET", "/api/v1/challenge/"+id, "").json()).To(HaveKeyWithValue("timeout", "900s"))
			booted := c.boot(ctx, id, "7")
			Expect(booted.Status).To(Equal(200), booted.Body)
			stopped := c.call(ctx, "DELETE", "/api/v1/instance/"+id+"/7", "")
			Expect(stopped.Status).To(Equal(200), stopped.Body)
			refuses(c.call(ctx, "GET", "/api/v1/instance/"+id+"/7", ""), 404, 5, "has no instance")
			gone := c.call(ctx, "DELETE", "/api/v1/challenge/"+id, "")
			Expect(gone.Status).To(Equal(200), gone.Body)
			Expect(c.results(c.call(ctx, "GET", "/api/v1/challenge", ""))).To(BeEmpty())
			refuses(c.call(ctx, "GET", "/api/v1/challenge/"+id, ""), 404, 5, "not registered")
		}
	})

	// What the plugin's own test of a pool does: one instance, which a player gets within half a second.
	It("has an instance prepared, which a player gets within half a second", func(ctx context.Context) {
		bergtest.AllowPrepared(ctx)
		inprocess.Restart(map[string]string{"CHALLENGE_WARM_MAX_INSTANCES": "4"}, nil)
		ns := bergtest.Namespace(ctx)
		challenge := bergtest.Challenge(ctx, ns, "guestbook", strings.ReplaceAll(oneFlag, "example.com/web:1", "berg.test/behaviour/flag:1"))
		c := ctfd{begin(ctx, ns, 1, nil).proxy.URL}
		Expect(c.register(ctx, "1", "guestbook", `"600s"`).Status).To(Equal(200))
		Expect(c.call(ctx, "PATCH", "/api/v1/challenge/1", `{"min":"1","max":"1","updateMask":"min,max"}`).Status).To(Equal(200))
		expect.Shows(ctx, challenge, bergv1.ChallengeConditionWarm, metav1.ConditionTrue, bergv1.WarmReady)
		Expect(live(ctx, ns)).To(BeEmpty(), "a player could see it")

		began := time.Now()
		booted := c.boot(ctx, "1", "7")
		Expect(time.Since(began)).To(BeNumerically("<=", limits.Scaled(500*time.Millisecond)))
		Expect(booted.Status).To(Equal(200), booted.Body)
		Expect(booted.json()).To(And(HaveKeyWithValue("connectionInfo", Not(BeEmpty())), HaveKeyWithValue("flags", Not(BeEmpty()))))
		taken := live(ctx, ns)
		Expect(taken).To(HaveLen(1))
		Expect(taken[0].Status.PreparedFrom).NotTo(BeEmpty())
		Expect(booted.json()["flags"]).To(ContainElement(taken[0].Spec.Flag))
		expect.Shows(ctx, challenge, bergv1.ChallengeConditionWarm, metav1.ConditionFalse, bergv1.WarmLimited)

		Expect(c.call(ctx, "PATCH", "/api/v1/challenge/1", `{"min":"0","max":"0","updateMask":"min,max"}`).Status).To(Equal(200))
		Eventually(func() []bergv1.ChallengeInstance { return bergtest.PreparedFor(ctx, challenge) }).Should(BeEmpty())
	})

	It("registers challenges, and its players boot, read, renew, restart and stop instances", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		c := ctfd{begin(ctx, ns, 2, nil).proxy.URL}

		Expect(c.call(ctx, "GET", "/healthcheck", "").Status).To(Equal(200))
		refuses(c.register(ctx, "1", "nothing", `"600s"`), 400, 3, "guestbook")
		made := c.register(ctx, "1", "registry.example.com/x/guestbook:v1", `"600s"`)
		Expect(made.Status).To(Equal(200), made.Body)
		Expect(made.json()).To(And(HaveKeyWithValue("id", "1"), HaveKeyWithValue("timeout", "600s"), HaveKeyWithValue("until", BeNil()), HaveKeyWithValue("min", "0")))
		refuses(c.call(ctx, "GET", "/api/v1/challenge/2", ""), 404, 5, "not registered")
		refuses(c.call(ctx, "GET", "/api/v1/instance/1/7", ""), 404, 5, "has no instance")
		refuses(c.call(ctx, "PUT", "/api/v1/challenge", "{}"), 501, 12, "no such call")

		By("having its images pulled ahead while some instances are always expected")
		wanted := func() (all corev1.ConfigMapList) {
			Expect(k8s.List(ctx, &all, client.InNamespace(ns), client.MatchingLabels{
				bergv1.LabelManagedBy: bergv1.ManagedByAPI, bergv1.LabelPrepullChallenge: "guestbook",
			})).To(Succeed())
			return all
		}
		Expect(wanted().Items).To(BeEmpty())
		more := c.call(ctx, "PATCH", "/api/v1/challenge/1", `{"min":"2","updateMask":"min"}`)
		Expect(more.Status).To(Equal(200), more.Body)
		Expect(wanted().Items).To(HaveLen(1))
		Expect(wanted().Items[0].Labels).To(HaveKeyWithValue(bergv1.LabelWarm, "2-0"))
		refuses(c.call(ctx, "PATCH", "/api/v1/challenge/1", `{"min":"2","max":"1","updateMask":"min,max"}`), 400, 3, "must not be above spec.warm.max")
		Expect(c.call(ctx, "PATCH", "/api/v1/challenge/1", `{"min":"0","updateMask":"min"}`).Status).To(Equal(200))
		Expect(wanted().Items).To(BeEmpty())

		booted := c.boot(ctx, "1", "7")
		Expect(booted.Status).To(Equal(200), booted.Body)
		first := booted.json()
		Expect(first).To(And(HaveKey("since"), HaveKey("until"), HaveKey("lastRenew"),
			HaveKeyWithValue("connectionInfo", ContainSubstring("tcp://")),
			HaveKeyWithValue("flags", ConsistOf(MatchRegexp(`^flag\{secret_[0-9a-f]{12}\}$`)))))
		refuses(c.boot(ctx, "1", "7"), 409, 6, "already exist")

		read := c.call(ctx, "GET", "/api/v1/instance/1/7", "").json()
		Expect(read).To(HaveKeyWithValue("connectionInfo", first["connectionInfo"]))
		Expect(c.results(c.call(ctx, "GET", "/api/v1/instance?sourceId=7", ""))).To(HaveLen(1))
		Expect(c.results(c.call(ctx, "GET", "/api/v1/instance?sourceId=8", ""))).To(BeEmpty())
		listed := c.results(c.call(ctx, "GET", "/api/v1/challenge", ""))
		Expect(listed).To(HaveLen(1))
		Expect(listed[0]).To(HaveKeyWithValue("instances", ConsistOf(And(HaveKeyWithValue("sourceId", "7"), HaveKey("since"), HaveKey("lastRenew")))))

		renewed := c.call(ctx, "PATCH", "/api/v1/instance/1/7", "{}")
		Expect(renewed.Status).To(Equal(200), renewed.Body)
		Expect(fmt.Sprint(renewed.json()["until"]) >= fmt.Sprint(first["until"])).To(BeTrue(), "%v after %v", renewed.json()["until"], first["until"])

		stopped := c.call(ctx, "DELETE", "/api/v1/instance/1/7", "")
		Expect(stopped.Status).To(Equal(200), stopped.Body)
		Expect(stopped.json()).To(BeEmpty())
		again := c.boot(ctx, "1", "7")
		Expect(again.Status).To(Equal(200), again.Body)
		Expect(again.json()["flags"]).NotTo(Equal(first["flags"]), "the restarted instance is the old one")
		Expect(live(ctx, ns)).To(HaveLen(1))

		gone := c.call(ctx, "DELETE", "/api/v1/challenge/1", "")
		Expect(gone.Status).To(Equal(200), gone.Body)
		Eventually(func() []bergv1.ChallengeInstance { return live(ctx, ns) }).Should(BeEmpty(), "instances outlive their challenge")
	})

	It("gets one instance from twenty starts at the same time", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		c := ctfd{begin(ctx, ns, 2, nil).proxy.URL}
		Expect(c.register(ctx, "1", "guestbook", "null").Status).To(Equal(200))
		answers := make([]answer, 20)
		var all sync.WaitGroup
		for n := range answers {
			all.Go(func() {
				defer GinkgoRecover()
				answers[n] = c.boot(ctx, "1", "7")
			})
		}
		all.Wait()
		flags := map[string]bool{}
		for _, a := range answers {
			if a.Status == 409 {
				continue // it ran already
			}
			Expect(a.Status).To(Equal(200), a.Body)
			flags[fmt.Sprint(a.json()["flags"])] = true
		}
		Expect(flags).To(HaveLen(1))
		Expect(live(ctx, ns)).To(HaveLen(1))
	})

	It("gets an answer that says when the budget of a source is used up, and not after a restart", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"SOURCE_MAX_INSTANCES": "1"}, nil)
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		c := ctfd{begin(ctx, ns, 2, nil).proxy.URL}
		for _, id := range []string{"1", "2"} {
			Expect(c.register(ctx, id, "guestbook", "null").Status).To(Equal(200))
		}
		Expect(c.boot(ctx, "1", "7").Status).To(Equal(200))
		refuses(c.boot(ctx, "2", "7"), 429, 8, "SOURCE_MAX_INSTANCES")
		Eventually(func() []bergv1.ChallengeInstance { return live(ctx, ns) }).Should(HaveLen(1), "the refused one waits on")
		Expect(c.call(ctx, "DELETE", "/api/v1/instance/1/7", "").Status).To(Equal(200))
		restarted := c.boot(ctx, "1", "7")
		Expect(restarted.Status).To(Equal(200), restarted.Body)
	})
})

var _ = Describe("Two replicas", func() {
	It("start none twice and none wrongly in 100 restarts, while one is killed", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		a := begin(ctx, ns, 2, map[string]string{"BOOT_WAIT": "120s"})
		c := ctfd{a.proxy.URL}
		Expect(c.register(ctx, "1", "guestbook", "null").Status).To(Equal(200))
		const players, restarts = 10, 10
		var all sync.WaitGroup
		for player := range players {
			all.Go(func() {
				defer GinkgoRecover()
				source := fmt.Sprint(player + 1)
				for n := range restarts {
					booted := c.boot(ctx, "1", source)
					for booted.Status == http.StatusBadGateway { // the replica was killed
						booted = c.boot(ctx, "1", source)
					}
					Expect(booted.Status).To(Or(Equal(200), Equal(409)), booted.Body)
					if player == 0 && n == restarts/2 {
						a.replicas[0].kill()
					}
					stopped := c.call(ctx, "DELETE", "/api/v1/instance/1/"+source, "")
					if stopped.Status == http.StatusBadGateway {
						stopped = c.call(ctx, "DELETE", "/api/v1/instance/1/"+source, "")
						Expect(stopped.Status).To(Or(Equal(200), Equal(404)), stopped.Body) // the first one may have arrived
						continue
					}
					Expect(stopped.Status).To(Equal(200), stopped.Body)
				}
				Expect(c.boot(ctx, "1", source).Status).To(Equal(200))
			})
		}
		all.Wait()
		sources := map[string]int{}
		for _, i := range live(ctx, ns) {
			sources[i.Labels[bergv1.LabelSource]]++
		}
		Expect(sources).To(HaveLen(players))
		for source, n := range sources {
			Expect(n).To(Equal(1), source)
		}
	})
})
