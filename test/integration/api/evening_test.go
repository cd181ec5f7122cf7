package api

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bergctf/berg-operator/test/lib/bergtest"
)

var _ = Describe("The page of the evening", func() {
	It("shows every instance as it changes, to those with its token alone, and no flag", func(ctx context.Context) {
		const flag = "flag{not-for-the-wall}"
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		a := begin(ctx, ns, 1, nil)
		c := newV1(ctx, a.proxy.URL)
		see := func(path string) answer {
			return call(ctx, http.MethodGet, a.replicas[0].http.URL+path, "", func(r *http.Request) { r.SetBasicAuth("wall", tokensOf["evening"]) })
		}
		Eventually(func() int { return see("/evening/").Status }).Should(Equal(http.StatusOK))
		Expect(call(ctx, http.MethodGet, a.replicas[0].http.URL+"/evening/", "", func(*http.Request) {}).Status).To(Equal(http.StatusUnauthorized))
		Expect(c.plain(ctx, http.MethodGet, "/evening/", "").Status).To(Equal(http.StatusUnauthorized), "with the token of another door")

		lines := stream(ctx, a.replicas[0].http.URL+"/evening/events", func(r *http.Request) { r.SetBasicAuth("wall", tokensOf["evening"]) })
		streamed := ""
		shows := func(text string) {
			GinkgoHelper()
			Eventually(func() string {
				for {
					select {
					case line := <-lines:
						streamed += line + "\n"
					default:
						return streamed
					}
				}
			}).Should(ContainSubstring(text))
		}

		Expect(c.plain(ctx, http.MethodPut, "/v1/instances/guestbook/team-1", `{"flag": "`+flag+`", "waitSeconds": 30}`).Status).To(BeNumerically("<", 300))
		shows("team-1")
		shows(`class=\"running\"`)
		page := see("/evening/?q=TEAM-1").Body
		Expect(page).To(And(ContainSubstring("1 found"), ContainSubstring("guestbook"), ContainSubstring(">running<")))
		name, _, _ := strings.Cut(page[strings.Index(page, `href="instances/`)+len(`href="instances/`):], `"`)
		one := see("/evening/instances/" + name).Body
		Expect(one).To(And(ContainSubstring("kubectl berg why "+name+" -n "+ns), ContainSubstring("PodsReady")))

		Expect(c.plain(ctx, http.MethodDelete, "/v1/instances/guestbook/team-1", "").Status).To(Equal(http.StatusOK))
		shows(`{"id":"` + ns + "/" + name + `"}`)
		Expect(page + one + streamed).NotTo(ContainSubstring("not-for-the-wall"))
	})
})
