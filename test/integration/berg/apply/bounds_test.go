package apply

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

var _ = Describe("A problem is reported in a few words, however long it is:", func() {
	DescribeTable("of a Challenge, with the field and what to do",
		func(ctx context.Context, spec string, says ...string) {
			ns := bergtest.Publish(ctx, "long", spec)
			i := bergtest.Instance(ctx, ns, "long")
			expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonInvalidChallenge)
			Expect(i.Status.Phase).To(Equal(bergv1.PhaseFailed))
			for _, text := range says {
				expect.Says(ctx, i, text)
			}
			expect.Readable(i.Status.Conditions)
			expect.Event(ctx, i, corev1.EventTypeWarning, bergv1.ReasonInvalidChallenge)
		},
		Entry("the name of a variable", fmt.Sprintf(`containers: [{hostname: a, image: i, environment: {? "%s=" : 1}}]`, strings.Repeat("x", 17000)),
			"spec.containers[0].environment[xxx", "must consist of"),
		Entry("such a name in an alphabet of its own", fmt.Sprintf(`containers: [{hostname: a, image: i, environment: {? "%s" : 1}}]`, strings.Repeat("ä", 17000)),
			"spec.containers[0].environment[ä", "must consist of"),
		Entry("many such names", `containers: [{hostname: a, image: i, environment: {`+manyLongVariables(12)+`}}]`,
			"spec.containers[0].environment[", "must consist of", "more"),
		Entry("every image", `containers: [`+manyLongImages(16)+`]`, "spec.containers[0].image", "leading or trailing spaces", "more"),
	)
})

func manyLongVariables(n int) string {
	all := make([]string, 0, n)
	for i := range n {
		all = append(all, fmt.Sprintf(`? "%d%s=" : 1`, i, strings.Repeat("x", 5000)))
	}
	return strings.Join(all, ", ")
}

func manyLongImages(n int) string {
	all := make([]string, 0, n)
	for i := range n {
		all = append(all, fmt.Sprintf(`{hostname: h%d, image: " %s"}`, i, strings.Repeat("i", 1023)))
	}
	return strings.Join(all, ", ")
}
