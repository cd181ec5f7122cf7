package gate

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var _ = Describe("A setting that the gate refuses", func() {
	It("is in an event about the ConfigMap, and changes nothing", func(ctx SpecContext) {
		gate := newReplica(ctx, "127.0.0.20", account(ctx))
		shared := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: settings.ConfigMap}, Data: map[string]string{"GATE_DRAIN": "soon"}}
		apiserver.Create(ctx, shared)
		Eventually(func(g Gomega) {
			var events corev1.EventList
			g.Expect(k8s.List(ctx, &events, client.InNamespace(installed.Namespace), client.MatchingFields{"involvedObject.uid": string(shared.UID)})).To(Succeed())
			g.Expect(events.Items).To(ConsistOf(And(HaveField("Reason", settings.ReasonInvalid), HaveField("ReportingController", "berg-gate"),
				HaveField("Message", ContainSubstring(`GATE_DRAIN="soon"`)))))
		}).WithContext(ctx).Should(Succeed())
		Expect(gate.Exited()).NotTo(BeClosed())
	}, SpecTimeout(limits.Scaled(2*time.Minute)))
})
