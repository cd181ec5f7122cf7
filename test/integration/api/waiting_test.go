package api

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var _ = Describe("A player who waits", func() {
	// The answer waits for a minute and more, except where waiting does not help.
	waits := map[string]string{"BOOT_WAIT": "90s", "READ_WAIT": "60s"}

	DescribeTable("learns the cause immediately, from every endpoint and again from a page that is loaded again",
		func(ctx context.Context, env map[string]string, spec, words, rctfStatus string) {
			inprocess.Restart(env, nil)
			ns := bergtest.Namespace(ctx)
			bergtest.Challenge(ctx, ns, "guestbook", spec)
			bergtest.Challenge(ctx, ns, "first", oneFlag)
			a := begin(ctx, ns, 1, waits)
			if env != nil {
				bergtest.Running(ctx, ns, "first")
			}
			c := ctfd{a.proxy.URL}
			Expect(c.register(ctx, "1", "guestbook", "null").Status).To(Equal(200))

			By("CTFd")
			began := time.Now()
			booted := c.boot(ctx, "1", "7")
			Expect(booted.Status).To(Equal(200), booted.Body)
			Expect(booted.json()).To(And(HaveKey("since"), HaveKeyWithValue("connectionInfo", ContainSubstring(words))))
			Expect(c.boot(ctx, "1", "7").json()).To(HaveKeyWithValue("connectionInfo", ContainSubstring(words)))
			read := c.call(ctx, "GET", "/api/v1/instance/1/7", "")
			Expect(read.json()).To(And(HaveKey("since"), HaveKeyWithValue("connectionInfo", ContainSubstring(words))))
			Expect(time.Since(began)).To(BeNumerically("<", 45*time.Second), "it waited although the cause was known")

			By("rCTF")
			r := rctf{a.proxy.URL, tokensOf["rctf"]}
			Expect(r.call(ctx, "PUT", "guestbook", `,"flags":[]`).Status).To(Equal(200))
			Eventually(func() map[string]any { return r.state(ctx, "guestbook") }).Should(And(
				HaveKeyWithValue("status", rctfStatus), HaveKeyWithValue("endpoints", ContainElement(HaveKeyWithValue("text", ContainSubstring(words))))))

			By("programs of others")
			v := newV1(ctx, a.proxy.URL)
			began = time.Now()
			put := v.call(ctx, "PUT", "/v1/instances/{challenge}/{source}", `{"waitSeconds":60}`, "challenge", "guestbook", "source", "9")
			Expect(put.json()).To(HaveKeyWithValue("reason", ContainSubstring(words)))
			Expect(time.Since(began)).To(BeNumerically("<", 45*time.Second))
		},
		Entry("an image that cannot be pulled", nil, bergtest.Misbehaving("image-pull"), "image is not available", "errored"),
		Entry("a program that ends", nil, bergtest.Misbehaving("crash"), "a program in it fails", "errored"),
		Entry("no capacity", nil, bergtest.NeverReady, "servers are full", "starting"),
		Entry("a full queue", map[string]string{"CHALLENGE_MAX_INSTANCES": "1"}, oneFlag, "in the queue", "starting"),
	)

	It("reads no text that is for organisers", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "unreleased", oneFlag)
		a := begin(ctx, ns, 1, nil)
		r := rctf{a.proxy.URL, tokensOf["rctf"]}
		for what, got := range map[string]answer{
			"an unknown challenge": r.call(ctx, "PUT", "typo", `,"flags":[]`),
			"a wrong token":        rctf{a.proxy.URL, "x"}.call(ctx, "POST", "unreleased", ""),
			"a wrong time":         r.call(ctx, "PUT", "unreleased", `,"timeoutMilliseconds":-1`),
		} {
			Expect(got.Status).To(BeNumerically(">=", http.StatusBadRequest), what)
			Expect(got.json()["message"]).To(And(ContainSubstring("organisers"), Not(ContainSubstring("unreleased")), Not(ContainSubstring("berg-api-tokens"))), what)
		}
	})
})

var _ = Describe("The author's words", func() {
	It("say through every endpoint how to connect, and follow an edit without a rollout", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		challenge := bergtest.Challenge(ctx, ns, "guestbook", "connectionInfo: ssh -p {web.port} ctf@{host}\n"+oneFlag)
		a := begin(ctx, ns, 1, nil)
		c, r, v := ctfd{a.proxy.URL}, rctf{a.proxy.URL, tokensOf["rctf"]}, newV1(ctx, a.proxy.URL)
		Expect(c.register(ctx, "1", "guestbook", "null").Status).To(Equal(200))
		words := MatchRegexp(`^ssh -p \d+ ctf@\S+$`)
		Expect(c.boot(ctx, "1", "7").json()).To(HaveKeyWithValue("connectionInfo", words))
		Expect(r.call(ctx, "PUT", "guestbook", `,"flags":[]`).Status).To(Equal(200))
		Eventually(func() map[string]any { return r.state(ctx, "guestbook") }).Should(HaveKeyWithValue("endpoints", ContainElement(And(
			HaveKeyWithValue("kind", "raw"), HaveKeyWithValue("text", words)))))
		const one = "/v1/instances/{challenge}/{source}"
		Expect(v.call(ctx, "PUT", one, `{"waitSeconds":45}`, "challenge", "guestbook", "source", "9").json()).To(HaveKeyWithValue("connection", words))

		bergtest.Respecify(ctx, challenge, "connectionInfo: nc {host} {port}\n"+oneFlag)
		Eventually(func() map[string]any { return c.call(ctx, "GET", "/api/v1/instance/1/7", "").json() }).Should(
			HaveKeyWithValue("connectionInfo", MatchRegexp(`^nc \S+ \d+$`)))
	})

	It("say which ports no program may try", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "once", `containers: [{hostname: pwn, image: "example.com/pwn:1", ports: [{port: 1337, type: publicPort, connectAtStart: false}]}]`)
		v := newV1(ctx, begin(ctx, ns, 1, nil).proxy.URL)
		running := v.call(ctx, "PUT", "/v1/instances/{challenge}/{source}", `{"waitSeconds":45}`, "challenge", "once", "source", "9")
		Expect(running.json()).To(HaveKeyWithValue("endpoints", ConsistOf(HaveKeyWithValue("connectAtStart", false))))
	})
})
