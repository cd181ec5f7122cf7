package berg

import (
	"context"
	"io"
	"net"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

var _ = Describe("The bandwidth of a container", func() {
	It("is asked of the network plugin, which keeps it where it can", func(ctx SpecContext) {
		const limit = "8M"
		stage := journey.NewStage(ctx)
		container := journey.Toolbox("box", newPort("flood", 9001, bergv1.PublicPort))
		container.EgressBandwidth = limit
		container.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_FLOOD": bergv1.StringValue(":9001")}
		stage.Challenge(ctx, "limited", container)
		running := stage.Start(ctx, stage.Instance("limited")).ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)

		pods, err := world.Pods(ctx, running.Status.Namespace, client.MatchingLabels{bergv1.LabelContainer: "box"})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(1))
		Expect(pods[0].Annotations).To(HaveKeyWithValue("kubernetes.io/egress-bandwidth", limit))
		if !limitsBandwidth(ctx) {
			return
		}

		var connection net.Conn
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) (err error) { // it runs, and may not listen yet
			connection, err = (&net.Dialer{}).DialContext(ctx, "tcp", world.AtNode(endpoint(running, "flood").Port))
			return err
		})
		DeferCleanup(connection.Close)
		bits := resource.MustParse(limit)
		allowed := float64(bits.Value()) / 8
		// The container runtime allows a burst of half a gigabyte, which comes first.
		fastest, slow := 0.0, 0
		for slow < 3 {
			rate := received(ctx, connection, time.Second)
			fastest = max(fastest, rate)
			if rate > 0 && rate < 2*allowed {
				slow++
			} else {
				slow = 0
			}
		}
		Expect(fastest).To(BeNumerically(">", 5*allowed), "bytes per second before the limit took effect")
	}, SpecTimeout(deployed.SpecLimit))
})

// received reads for a while and returns the bytes per second.
func received(ctx context.Context, connection net.Conn, window time.Duration) float64 {
	GinkgoHelper()
	Expect(ctx.Err()).NotTo(HaveOccurred())
	begun := time.Now()
	Expect(connection.SetReadDeadline(begun.Add(window))).To(Succeed())
	n, err := io.Copy(io.Discard, connection)
	Expect(err).To(MatchError(os.ErrDeadlineExceeded))
	return float64(n) / time.Since(begun).Seconds()
}

// limitsBandwidth tells whether the network plugin does, as the node says of
// itself: profile node of test/cluster does where the kernel can.
func limitsBandwidth(ctx context.Context) bool {
	GinkgoHelper()
	var nodes corev1.NodeList
	Expect(world.List(ctx, &nodes, client.MatchingLabels{"berg.test/bandwidth": "true"})).To(Succeed())
	return len(nodes.Items) > 0
}
