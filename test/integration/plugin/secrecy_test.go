package plugin

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// The log of a script or of a build server keeps what a command prints.
var _ = Describe("A command whose change admission quotes", func() {
	DescribeTable("does not print the flag", func(ctx context.Context, action string) {
		const secret = "only_for_players"
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "web", func(i *bergv1.ChallengeInstance) { i.Spec.Flag = "flag{" + secret + "}" })
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		apiserver.QuoteFlags(ctx, ns, action)
		got := run(ctx, "extend", "10m", i.Name, "-n", ns)
		Expect(got.out+got.err).To(ContainSubstring(apiserver.Quotation+"<flag>"), "nothing was quoted")
		Expect(got.out + got.err).NotTo(ContainSubstring(secret))
	},
		Entry("when it refuses", "Deny"),
		Entry("when it warns", "Warn"),
	)
})
