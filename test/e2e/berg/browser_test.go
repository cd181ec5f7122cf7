package berg

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/browser"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

// The browser is Debian's: hack/packages browser.
var _ = Describe("What a player sees in a browser", Label("network"), Serial, func() {
	It("is the challenge, by https, under a certificate that the browser believes, until the instance ends", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Sample(ctx, "web")
		reported := stage.Start(ctx, stage.Instance("web"))
		running := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		site := endpoint(running, "web")
		Expect(site.URL).To(HavePrefix("https://"))
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return visit(ctx, site, http.StatusOK) })

		player := newBrowser(ctx, world.Rest.CAData)
		Expect(player.Page(ctx, site.URL+"/")).To(ContainSubstring("<h1>The Mountain Herald</h1>"))

		By("solving it there")
		way := url.Values{"name": {strings.Repeat("....//", 16) + "flag.txt"}}
		Expect(player.Page(ctx, site.URL+"/article?"+way.Encode())).To(ContainSubstring(reported.Flag))

		By("trusting only the certificate that it was given")
		_, err := newBrowser(ctx, nil).Page(ctx, site.URL+"/")
		Expect(err).To(MatchError(ContainSubstring("net::ERR_CERT_AUTHORITY_INVALID")))

		By("finding nothing once it has ended")
		reported.Patch(ctx, `{"terminationReason":"UserRequest"}`)
		reported.ExpectEnd(ctx)
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return visit(ctx, site, http.StatusNotFound) })
		Expect(player.Page(ctx, site.URL+"/")).NotTo(ContainSubstring("Herald"))
	}, SpecTimeout(deployed.SpecLimit))
})

// newBrowser is a browser of a player who finds the Gateway, and believes an authority besides those of the public.
func newBrowser(ctx context.Context, authority []byte) *browser.Browser {
	GinkgoHelper()
	b, err := browser.New(ctx, setting("CHALLENGE_DOMAIN"), world.NodeAddress, authority)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(b.Close)
	return b
}
