package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

// What the tables of the two platforms' calls say in addition to the life of an instance.
var _ = Describe("CTFd", func() {
	It("edits a challenge, which changes the instances that live", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		for _, name := range []string{"guestbook", "notes"} {
			bergtest.Challenge(ctx, ns, name, oneFlag)
		}
		c := ctfd{begin(ctx, ns, 1, nil).proxy.URL}
		Expect(c.register(ctx, "1", "registry.example.com/x/guestbook:v1", `"600s"`).Status).To(Equal(200))
		Expect(c.boot(ctx, "1", "7").Status).To(Equal(200))
		instance := func() bergv1.ChallengeInstance {
			GinkgoHelper()
			all := live(ctx, ns)
			Expect(all).To(HaveLen(1))
			return all[0]
		}
		edit := func(body string) map[string]any {
			GinkgoHelper()
			edited := c.call(ctx, "PATCH", "/api/v1/challenge/1", body)
			Expect(edited.Status).To(Equal(200), edited.Body)
			return edited.json()
		}
		Expect(instance().Spec.Timeout).To(Equal("600s"))

		By("a longer timeout, and an end of all")
		until := time.Now().Add(15 * time.Minute).UTC().Truncate(time.Second)
		Expect(edit(fmt.Sprintf(`{"timeout":"1200s","until":%q,"updateMask":"timeout,until"}`, until.Format(time.RFC3339)))).To(And(
			HaveKeyWithValue("timeout", "1200s"), HaveKeyWithValue("until", until.Format(time.RFC3339))))
		Eventually(func() time.Time { return instance().Status.ExpiresAt.UTC() }).Should(Equal(until), "it does not end with all")
		Expect(c.call(ctx, "GET", "/api/v1/instance/1/7", "").json()).To(HaveKeyWithValue("until", until.Format(time.RFC3339)))

		By("no end of all: null, and not sent although the mask names it")
		Expect(edit(`{"until":null,"updateMask":"until"}`)).To(HaveKeyWithValue("until", BeNil()))
		Expect(instance().Spec.Timeout).To(Equal("1200s"))
		Expect(instance().Spec.Until).To(BeNil())
		Expect(edit(`{"updateMask":"min,max"}`)).To(And(HaveKeyWithValue("min", "0"), HaveKeyWithValue("timeout", "1200s")))

		By("another tag")
		Expect(instance().Annotations).NotTo(HaveKey(bergv1.AnnotationRollout))
		edit(`{"scenario":"registry.example.com/x/guestbook:v2","updateMask":"scenario"}`)
		Expect(instance().Annotations).To(HaveKey(bergv1.AnnotationRollout))

		By("another Challenge")
		edit(`{"scenario":"notes","updateMask":"scenario"}`)
		Expect(instance().Spec.ChallengeRef.Name).To(Equal("guestbook"))
		Expect(c.call(ctx, "DELETE", "/api/v1/instance/1/7", "").Status).To(Equal(200))
		Expect(c.boot(ctx, "1", "7").Status).To(Equal(200))
		Expect(instance().Spec.ChallengeRef.Name).To(Equal("notes"))
	})

	It("gets an answer in time while an instance does not run, and joins its start", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		paused := bergtest.Challenge(ctx, ns, "guestbook", oneFlag, bergtest.Frozen)
		a := begin(ctx, ns, 2, map[string]string{"BOOT_WAIT": "2s", "READ_WAIT": "1s"})
		c := ctfd{a.proxy.URL}
		Expect(c.register(ctx, "1", "guestbook", "null").Status).To(Equal(200))
		flags := map[string]bool{}
		Eventually(func() any { // through both replicas, until the operator has said why
			booted := c.boot(ctx, "1", "7")
			Expect(booted.Status).To(Equal(200), booted.Body)
			Expect(booted.json()).To(And(HaveKey("since"), HaveKey("lastRenew"), Not(HaveKey("until"))))
			flags[fmt.Sprint(booted.json()["flags"])] = true
			return booted.json()["connectionInfo"]
		}).Should(ContainSubstring("paused this challenge"))
		booted := c.boot(ctx, "1", "7").json()
		Expect(booted).To(HaveKey("since"))
		Expect(flags).To(HaveLen(1), "a second start made another instance")
		Expect(live(ctx, ns)).To(HaveLen(1))
		read := c.call(ctx, "GET", "/api/v1/instance/1/7", "")
		Expect(read.Status).To(Equal(200), read.Body)
		Expect(read.json()).To(And(HaveKeyWithValue("since", booted["since"]), Not(HaveKey("until")), HaveKeyWithValue("connectionInfo", booted["connectionInfo"])),
			"who reloads the page learns nothing")
		for _, list := range []string{"/api/v1/challenge", "/api/v1/instance?sourceId=7"} { // admins' pages split both times
			listed := c.results(c.call(ctx, "GET", list, ""))
			Expect(listed).To(HaveLen(1))
			row := listed[0]
			if of, is := row["instances"].([]any); is {
				Expect(of).To(HaveLen(1))
				row, _ = of[0].(map[string]any)
			}
			Expect(row).To(And(HaveKeyWithValue("challengeId", "1"), HaveKeyWithValue("sourceId", "7"),
				HaveKeyWithValue("since", ContainSubstring("T")), HaveKeyWithValue("lastRenew", ContainSubstring("T"))))
		}

		apiserver.Change(ctx, paused, func() { delete(paused.Annotations, bergv1.AnnotationFrozen) })
		Eventually(func() map[string]any { return c.call(ctx, "GET", "/api/v1/instance/1/7", "").json() }).Should(And(
			HaveKey("since"), HaveKeyWithValue("connectionInfo", ContainSubstring("tcp://"))))
	})

	It("may send more and less than is needed, shares an instance, and uses an id twice", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		c := ctfd{begin(ctx, ns, 2, nil).proxy.URL}
		made := c.call(ctx, "POST", "/api/v1/challenge", `{"id":"1","scenario":"guestbook","timeout":"600s","poolName":"a","extra":{"a":[1]}}`)
		Expect(made.Status).To(Equal(200), made.Body)
		Expect(made.json()).To(And(HaveKeyWithValue("min", "0"), HaveKeyWithValue("max", "0"), HaveKeyWithValue("instances", BeEmpty())))
		shared := c.boot(ctx, "1", "0")
		Expect(shared.Status).To(Equal(200), shared.Body)
		Expect(shared.json()).To(And(HaveKeyWithValue("challengeId", "1"), HaveKeyWithValue("sourceId", "0"), HaveKey("until")))
		renewed := c.call(ctx, "PATCH", "/api/v1/instance/1/0", "{}").json()
		Expect(renewed).To(And(HaveKeyWithValue("flags", Equal(shared.json()["flags"])), HaveKeyWithValue("connectionInfo", Equal(shared.json()["connectionInfo"])),
			HaveKeyWithValue("since", Equal(shared.json()["since"])), HaveKey("lastRenew")), "not the whole instance")

		Expect(c.call(ctx, "DELETE", "/api/v1/challenge/1", "").Status).To(Equal(200))
		again := c.register(ctx, "1", "guestbook", "null") // as CTFd on SQLite does for the next challenge
		Expect(again.Status).To(Equal(200), again.Body)
		refuses(c.call(ctx, "GET", "/api/v1/instance/1/0", ""), 404, 5, "has no instance")
		other := c.boot(ctx, "1", "0")
		Expect(other.Status).To(Equal(200), other.Body)
		Expect(other.json()["flags"]).NotTo(Equal(shared.json()["flags"]), "it is the instance of the challenge before")
	})

	It("reads code, message and details of each error", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		c := ctfd{begin(ctx, ns, 1, nil).proxy.URL}
		refuses(call(ctx, "GET", c.url+"/healthcheck", ""), 401, 16, "the token is not valid for this endpoint")
		Expect(c.register(ctx, "1", "guestbook", "null").Status).To(Equal(200))
		Expect(c.boot(ctx, "1", "7").Status).To(Equal(200))
		refuses(c.call(ctx, "PATCH", "/api/v1/instance/1/7", "{}"), 400, 9, "cannot be renewed")
		refuses(c.call(ctx, "PATCH", "/api/v1/challenge/1", `{"until":"2020-01-31T18:00:00Z","updateMask":"until"}`), 400, 3, "2020-01-31T18:00:00Z is in the past")
		refuses(c.call(ctx, "POST", "/api/v1/challenge", `{"id":"2","scenario":"guestbook","until":"2020-01-31T18:00:00Z"}`), 400, 3, "in the past")
		soon := fmt.Sprintf(`{"until":%q,"updateMask":"until"}`, time.Now().Add(1500*time.Millisecond).UTC().Format(time.RFC3339Nano))
		Expect(c.call(ctx, "PATCH", "/api/v1/challenge/1", soon).Status).To(Equal(200))
		Eventually(func() []bergv1.ChallengeInstance { return live(ctx, ns) }).Should(BeEmpty(), "the instance outlives its challenge")
		refuses(c.boot(ctx, "1", "8"), 400, 9, "ended at")
		Expect(c.call(ctx, "PATCH", "/api/v1/challenge/1", strings.Replace(soon, `"updateMask":"until"`, `"timeout":"60s","updateMask":"until,timeout"`, 1)).Status).To(
			Equal(200), "the form of a challenge that has ended cannot be saved")
		refuses(c.call(ctx, "PATCH", "/api/v1/challenge/1", `{"scenario":"nothing","updateMask":"scenario"}`), 400, 3, "guestbook")
		refuses(c.call(ctx, "PATCH", "/api/v1/challenge/1", `{"additional":{"IMAGE":"x"},"updateMask":"additional"}`), 400, 3, "IMAGE")
		refuses(c.call(ctx, "PATCH", "/api/v1/challenge/1", `{"until":"tomorrow","updateMask":"until"}`), 400, 3, "until")
		refuses(c.boot(ctx, "1", "8"), 400, 9, "ended at") // a PATCH that is refused changes nothing
		refuses(c.call(ctx, "PATCH", "/api/v1/challenge/9", `{"timeout":"1s","updateMask":"timeout"}`), 404, 5, "not registered")
		refuses(c.call(ctx, "DELETE", "/api/v1/challenge/9", ""), 404, 5, "not registered")
		refuses(c.call(ctx, "DELETE", "/api/v1/instance/1/9", ""), 404, 5, "has no instance")
	})

	It("may send variables that no Challenge has where ADDITIONAL_POLICY says so", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		c := ctfd{begin(ctx, ns, 1, map[string]string{"ADDITIONAL_POLICY": "ignore"}).proxy.URL}
		made := c.call(ctx, "POST", "/api/v1/challenge", `{"id":"1","scenario":"guestbook","additional":{"IMAGE":"x"}}`)
		Expect(made.Status).To(Equal(200), made.Body)
		booted := c.call(ctx, "POST", "/api/v1/instance", `{"challengeId":"1","sourceId":"7","additional":{"IMAGE":"x"}}`)
		Expect(booted.Status).To(Equal(200), booted.Body)
	})
})

var _ = Describe("rCTF", func() {
	It("reads each state, and why an instance is refused", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"SOURCE_MAX_INSTANCES": "1"}, nil)
		ns := bergtest.Namespace(ctx)
		paused := bergtest.Challenge(ctx, ns, "guestbook", oneFlag, bergtest.Frozen)
		bergtest.Challenge(ctx, ns, "notes", oneFlag)
		c := rctf{begin(ctx, ns, 2, nil).proxy.URL, tokensOf["rctf"]}

		By("starting without flags and timeout")
		started := c.call(ctx, "PUT", "guestbook", `,"config":{},"expose":[],"flags":[],"timeoutMilliseconds":null`)
		Expect(started.Status).To(Equal(200), started.Body)
		Expect(started.json()).To(And(HaveKeyWithValue("status", "starting"), HaveKeyWithValue("endpoints", BeNil()), HaveKeyWithValue("timeLeftMilliseconds", BeNil())))
		Expect(c.state(ctx, "guestbook")).To(HaveKeyWithValue("status", "starting"))
		again := c.call(ctx, "PUT", "guestbook", `,"flags":[]`)
		Expect(again.Status).To(Equal(200), again.Body)
		Expect(live(ctx, ns)).To(HaveLen(1))
		apiserver.Change(ctx, paused, func() { delete(paused.Annotations, bergv1.AnnotationFrozen) })
		Eventually(func() any { return c.state(ctx, "guestbook")["status"] }).Should(Equal("running"))

		By("starting one more than the team may run")
		Expect(c.call(ctx, "PUT", "notes", `,"flags":[]`).Status).To(Equal(200))
		var refused answer
		Eventually(func() int {
			refused = c.call(ctx, "POST", "notes", "")
			return refused.Status
		}).Should(Equal(429))
		Expect(refused.json()).To(And(HaveKeyWithValue("kind", "instancerError"), HaveKeyWithValue("message", And(ContainSubstring("Stop another one first"), Not(ContainSubstring("SOURCE_MAX"))))))

		By("stopping twice, and sending times that are none")
		stopped := c.call(ctx, "DELETE", "guestbook", "")
		Expect(stopped.Status).To(Equal(200), stopped.Body)
		Eventually(func() any { return c.state(ctx, "guestbook")["status"] }).Should(Equal("stopped"))
		gone := c.call(ctx, "DELETE", "guestbook", "") // a second click
		Expect(gone.Status).To(Equal(200), gone.Body)
		Expect(gone.json()).To(HaveKeyWithValue("status", "stopped"))
		Expect(k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(ns))).To(Succeed())
		for what, more := range map[string]string{
			"no time":            `,"timeoutMilliseconds":0`,
			"a negative time":    `,"timeoutMilliseconds":-1`,
			"a time in words":    `,"timeoutMilliseconds":"soon"`,
			"more than all time": `,"timeoutMilliseconds":9223372036854775807`,
		} {
			wrong := c.call(ctx, "PATCH", "notes", more)
			Expect(wrong.Status).To(Equal(400), "%s: %s", what, wrong.Body)
			Expect(wrong.json()).To(And(HaveKeyWithValue("kind", "instancerError"), HaveKey("message")), what)
		}
	})
})
