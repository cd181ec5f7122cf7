package operator

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/settings"
	"github.com/bergctf/berg-operator/internal/kit/settingsmap"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// publishSettings makes the ConfigMap with settings until the spec ends.
func publishSettings(ctx context.Context, data map[string]string) *corev1.ConfigMap {
	GinkgoHelper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: settings.ConfigMap}, Data: map[string]string{}, BinaryData: map[string][]byte{}}
	for name, value := range data {
		if utf8.ValidString(value) {
			m.Data[name] = value
		} else { // as kubectl does
			m.BinaryData[name] = []byte(value)
		}
	}
	apiserver.Create(ctx, m)
	return m
}

var _ = Describe("Settings of a ConfigMap", Ordered, func() {
	withProcesses()

	It("are used where the environment has the default, and a change starts the same process again", func(ctx context.Context) {
		shared := publishSettings(ctx, map[string]string{"CHALLENGE_DOMAIN": "map.example.com", "CHALLENGE_HTTP_PORT": "8080", "GATE_DRAIN": "20s"})
		p := start(ctx, "CHALLENGE_DOMAIN=env.example.com", "CHALLENGE_HTTP_PORT=80", "ENABLED_APIS=berg.norelect.ch").leads(ctx)
		Expect(p.Text()).To(And(ContainSubstring(`"CHALLENGE_DOMAIN":"env.example.com"`), ContainSubstring(`"CHALLENGE_HTTP_PORT":"8080"`),
			MatchRegexp(`"from the environment":\[[^\]]*"CHALLENGE_DOMAIN"`), ContainSubstring(`"from the ConfigMap berg-operator-settings":["CHALLENGE_HTTP_PORT"]`)))

		By("keeping the former settings while the new ones are invalid")
		apiserver.Change(ctx, shared, func() { shared.Data = map[string]string{"CHALLENGE_HTTP_PORT": "http", "challenge-tls-port": "1"} })
		Eventually(p.Text).Should(And(ContainSubstring("continues with the former ones"), ContainSubstring(`CHALLENGE_HTTP_PORT=\"http\"`),
			ContainSubstring("challenge-tls-port is no setting, did you mean CHALLENGE_TLS_PORT?")))
		Expect(p.Exited()).NotTo(BeClosed())
		Expect(p.probe("/readyz")).To(Equal(200))
		Eventually(func(g Gomega) {
			var events corev1.EventList
			g.Expect(k8s.List(ctx, &events, client.InNamespace(installed.Namespace), client.MatchingFields{"involvedObject.uid": string(shared.UID)})).To(Succeed())
			g.Expect(events.Items).To(ConsistOf(And(HaveField("Reason", settings.ReasonInvalid), HaveField("InvolvedObject.ResourceVersion", shared.ResourceVersion),
				HaveField("Message", ContainSubstring(`CHALLENGE_HTTP_PORT="http"`)))))
		}).Should(Succeed())

		By("starting again with valid ones")
		apiserver.Change(ctx, shared, func() { shared.Data = map[string]string{"CHALLENGE_HTTP_PORT": "8081"} })
		Eventually(p.Text).WithTimeout(limits.Scaled(settingsmap.Spread + 30*time.Second)).Should(ContainSubstring(`"CHALLENGE_HTTP_PORT":"8081"`))
		p.ready()
		Expect(p.Exited()).NotTo(BeClosed(), "the process continues under its number")
		Expect(strings.Count(p.Text(), "effective configuration")).To(Equal(2))

		By("returning to the defaults when the ConfigMap is deleted")
		Expect(k8s.Delete(ctx, shared)).To(Succeed())
		Eventually(func() int { return strings.Count(p.Text(), `"CHALLENGE_HTTP_PORT":"80"`) }).
			WithTimeout(limits.Scaled(settingsmap.Spread + 30*time.Second)).Should(Equal(1))
	})

	DescribeTable("are refused by name at the start", func(ctx context.Context, name, value, text string) {
		publishSettings(ctx, map[string]string{name: value})
		p := start(ctx)
		Eventually(p.Exited()).Should(BeClosed())
		Expect(p.ExitCode()).To(Equal(1))
		Expect(p.Text()).To(ContainSubstring(fmt.Sprintf("ConfigMap berg-operator-settings: %s%s", name, text)))
	},
		Entry("an unknown name", "CHALLENGE_DOMAINS", "x", " is no setting"),
		Entry("an unknown name of a value that is no text", "CHALLENGE_DOMAINS", "\xff", " is no setting"),
		Entry("an invalid value", "CHALLENGE_MAX_LIFETIME", "soon", `="soon"`),
		Entry("the namespace", "POD_NAMESPACE", "default", " can be set in the environment only"),
		Entry("the lease, which programs must not share", "LEASE_NAME", "mine", " can be set in the environment only"),
	)

	It("are not written by the operator's account, with any label", func(ctx context.Context) {
		shared := publishSettings(ctx, nil)
		operator := apiserver.As(apiserver.OperatorUser)
		shared.Labels = map[string]string{"app.kubernetes.io/managed-by": "berg"}
		Expect(operator.Update(ctx, shared)).NotTo(Succeed())
		Expect(operator.Delete(ctx, shared)).NotTo(Succeed())
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(shared), shared)).To(Succeed())
	})
})
