package api

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bergctf/berg-operator/test/lib/bergtest"
)

// rctf is what rCTF's instancer provider does.
type rctf struct{ url, token string }

const team = "0f8fad5b-d9cb-469f-a165-70867728950e"

func (c rctf) call(ctx context.Context, method, challenge, more string) answer {
	GinkgoHelper()
	return call(ctx, method, c.url+"/v1/instances/", fmt.Sprintf(
		`{"kind":"instancerRequest","rctfAuthToken":%q,"teamId":%q,"challengeIntegrationId":%q%s}`, c.token, team, challenge, more))
}

// state is the answer to a status.
func (c rctf) state(ctx context.Context, challenge string) map[string]any {
	GinkgoHelper()
	a := c.call(ctx, "POST", challenge, "")
	Expect(a.Status).To(Equal(200), a.Body)
	Expect(a.json()).To(And(HaveKeyWithValue("kind", "instancerInstanceDetails"), HaveKey("timeLeftMilliseconds"), HaveKey("endpoints")))
	return a.json()
}

var _ = Describe("rCTF", func() {
	It("starts, polls, extends and stops an instance with a flag of its own", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		c := rctf{begin(ctx, ns, 2, nil).proxy.URL, tokensOf["rctf"]}

		Expect(c.state(ctx, "guestbook")).To(And(HaveKeyWithValue("status", "stopped"), HaveKeyWithValue("endpoints", BeNil()), HaveKeyWithValue("timeLeftMilliseconds", BeNil())))
		started := c.call(ctx, "PUT", "guestbook", `,"config":{},"expose":[],"flags":[{"provider":"static","flag":"rctf{mine}"}],"timeoutMilliseconds":600000`)
		Expect(started.Status).To(Equal(200), started.Body)
		Expect(started.json()).To(HaveKeyWithValue("status", Or(Equal("starting"), Equal("running"))))
		var running map[string]any // two replicas need not see it at the same moment
		Eventually(func() any {
			running = c.state(ctx, "guestbook")
			return running["status"]
		}).Should(Equal("running"))
		Expect(running["timeLeftMilliseconds"]).To(And(BeNumerically(">", 0), BeNumerically("<=", 600000)))
		Expect(running["endpoints"]).To(ConsistOf(And(
			HaveKeyWithValue("kind", "tcp"), HaveKeyWithValue("bypassExpose", true), HaveKeyWithValue("title", "web"), HaveKey("host"), HaveKey("port"), HaveKey("text"))))
		Expect(live(ctx, ns)).To(HaveLen(1))
		Expect(live(ctx, ns)[0].Spec.Flag).To(Equal("rctf{mine}"))

		extended := c.call(ctx, "PATCH", "guestbook", `,"timeoutMilliseconds":3600000`)
		Expect(extended.Status).To(Equal(200), extended.Body)
		Expect(extended.json()["timeLeftMilliseconds"]).To(BeNumerically(">", 600000))

		stopped := c.call(ctx, "DELETE", "guestbook", "")
		Expect(stopped.Status).To(Equal(200), stopped.Body)
		Expect(stopped.json()).To(HaveKeyWithValue("status", "stopping"))
		Eventually(func() any { return c.state(ctx, "guestbook")["status"] }).Should(Equal("stopped"))

		for what, a := range map[string]answer{
			"unknown challenge": c.call(ctx, "PUT", "nothing", ""),
			"wrong token":       rctf{c.url, "x"}.call(ctx, "POST", "guestbook", ""),
			"token of CTFd":     rctf{c.url, tokensOf["chall-manager"]}.call(ctx, "POST", "guestbook", ""),
		} {
			Expect(a.Status).To(BeNumerically(">=", 400), what)
			Expect(a.json()).To(And(HaveKeyWithValue("kind", "instancerError"), HaveKey("message")), what)
		}
	})
})
