package api

import (
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var _ = Describe("Registrations", func() {
	It("belong to the key of a token, so that a rehearsal does not end the instances of the event", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		event := ctfd{begin(ctx, ns, 2, nil).proxy.URL}
		other := func(method, path, body string) answer {
			return call(ctx, method, event.url+path, body, func(r *http.Request) { r.SetBasicAuth("ctfd", rehearsal) })
		}
		Expect(event.register(ctx, "1", "guestbook", `"600s"`).Status).To(Equal(200))
		Expect(event.boot(ctx, "1", "7").Status).To(Equal(200))

		By("a second CTFd, which uses the same ids")
		refuses(other("GET", "/api/v1/challenge/1", ""), 404, 5, "not registered")
		Expect(event.results(other("GET", "/api/v1/challenge", ""))).To(BeEmpty())
		made := other("POST", "/api/v1/challenge", `{"id":"1","scenario":"guestbook"}`)
		Expect(made.Status).To(Equal(200), made.Body)
		booted := other("POST", "/api/v1/instance", `{"challengeId":"1","sourceId":"7"}`)
		Expect(booted.Status).To(Equal(200), booted.Body)
		Expect(live(ctx, ns)).To(HaveLen(2))
		Expect(event.results(event.call(ctx, "GET", "/api/v1/instance?sourceId=7", ""))).To(HaveLen(1))
		Expect(other("DELETE", "/api/v1/challenge/1", "").Status).To(Equal(200))
		Eventually(func() []bergv1.ChallengeInstance { return live(ctx, ns) }).Should(HaveLen(1))
		Expect(event.call(ctx, "GET", "/api/v1/instance/1/7", "").Status).To(Equal(200), "the rehearsal ended the instance of the event")

		By("a new database with the old token, whose plugin cleans up after the refused creation")
		refuses(event.register(ctx, "1", "guestbook", "null"), 409, 6, "token key of its own")
		Expect(event.call(ctx, "GET", "/api/v1/challenge/1", "").Status).To(Equal(200))
		refuses(event.call(ctx, "DELETE", "/api/v1/challenge/1", ""), 400, 9, "it is kept")
		Consistently(func() []bergv1.ChallengeInstance { return live(ctx, ns) }, 2*time.Second).Should(HaveLen(1))
	})

	It("are refused for a Challenge that is not accepted, by its reason", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		broken := bergtest.Challenge(ctx, ns, "broken", `containers: [{hostname: web, image: "example.com/web:1", additionalCapabilities: [SYS_ADMIN]}]`)
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(broken), broken)).To(Succeed())
			g.Expect(broken.Status.Conditions).NotTo(BeEmpty())
		}).Should(Succeed())
		c := ctfd{begin(ctx, ns, 1, nil).proxy.URL}
		refuses(c.register(ctx, "1", "broken", "null"), 400, 3, "not accepted. No instance of this Challenge can run: spec.containers[0].additionalCapabilities")
		bergtest.Respecify(ctx, broken, oneFlag)
		Eventually(func() int { return c.register(ctx, "1", "broken", "null").Status }).Should(Equal(200))
	})

	It("end instances at their until, also those that waited in the queue", func(ctx context.Context) {
		now := &bergtest.SteppingClock{}
		inprocess.Instead(now, inprocess.With(map[string]string{"CHALLENGE_MAX_INSTANCES": "1"}), nil)
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		c := ctfd{begin(ctx, ns, 1, map[string]string{"BOOT_WAIT": "3s"}).proxy.URL}
		until := time.Now().Add(40 * time.Minute).UTC().Truncate(time.Second)
		Expect(c.register(ctx, "1", "guestbook", "null").Status).To(Equal(200))
		ending := c.call(ctx, "POST", "/api/v1/challenge", `{"id":"2","scenario":"guestbook","timeout":"3600s","until":"`+until.Format(time.RFC3339)+`"}`)
		Expect(ending.Status).To(Equal(200), ending.Body)
		Expect(c.boot(ctx, "1", "7").Status).To(Equal(200))
		for _, source := range []string{"8", "9"} {
			queued := c.boot(ctx, "2", source)
			Expect(queued.Status).To(Equal(200), queued.Body)
			Expect(queued.json()).To(HaveKeyWithValue("connectionInfo", ContainSubstring("in the queue")))
		}

		By("the one that starts late")
		Expect(c.call(ctx, "DELETE", "/api/v1/instance/1/7", "").Status).To(Equal(200))
		Eventually(func() any { return c.call(ctx, "GET", "/api/v1/instance/2/8", "").json()["connectionInfo"] }).Should(ContainSubstring("tcp://"))
		Expect(c.call(ctx, "GET", "/api/v1/instance/2/8", "").json()).To(HaveKeyWithValue("until", until.Format(time.RFC3339)))

		By("both, the one that never started too")
		Expect(live(ctx, ns)).To(HaveLen(2))
		now.Step(time.Until(until))
		Eventually(func() []bergv1.ChallengeInstance { return live(ctx, ns) }).Should(BeEmpty())
	})
})
