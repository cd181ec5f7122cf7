// Package tunnel plays the journeys of container networks and tunnels on a cluster with real
// pods and a deployed operator, as a developer, an administrator and an attacker see them.
//
// It takes the cluster from KUBECONFIG, and listens at the loopback of the node: in the node's
// network namespace, which takes root. It leaves nothing behind. make e2e E2E=tunnel provides the rest.
package tunnel

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

func TestJourneys(t *testing.T) { deployed.Run(t, "Container networks and tunnels on a real cluster") }

// world is the cluster under test. Specs do not change it.
var world *deployed.Cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	world = deployed.Begin(ctx)
	SetDefaultEventuallyTimeout(limits.Wait)
	SetDefaultEventuallyPollingInterval(apiserver.PollInterval)
	Expect(installed.Folder(ctx, world, "config/tunnel/host", "journeys")).To(Succeed())
	// The proxies run the operator's own image, until registry_test.go sets TUNNEL_IMAGE.
}, NodeTimeout(limits.Scaled(3*time.Minute)))

// onLoopback starts a web server at the loopback of the node, until the spec ends. It answers
// with its name. Port 0 is any.
func onLoopback(ctx context.Context, name string, port int) int32 {
	GinkgoHelper()
	var listener net.Listener
	atNode(ctx, func() {
		var err error
		listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		Expect(err).NotTo(HaveOccurred())
	})
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, name) }),
	}
	go func() { _ = server.Serve(listener) }()
	DeferCleanup(func() { _ = server.Close() })
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

// atNode does something in the network namespace of the node. A socket stays where it was made.
func atNode(ctx context.Context, do func()) {
	GinkgoHelper()
	Expect(world.NodeNetwork(ctx)(do)).To(Succeed(), "is this root?")
}

// visitor starts a pod with the toolbox in a namespace, and waits until it is ready.
func visitor(ctx context.Context, namespace string) client.ObjectKey {
	GinkgoHelper()
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = namespace, "visitor"
	pod.Spec.Containers = []corev1.Container{{Name: "toolbox", Image: deployed.ToolboxImage}}
	Expect(world.Create(ctx, pod)).To(Succeed())
	Eventually(ctx, func() bool {
		return world.Get(ctx, client.ObjectKeyFromObject(pod), pod) == nil && deployed.PodReady(pod)
	}).WithTimeout(2 * time.Minute).Should(BeTrue())
	return client.ObjectKeyFromObject(pod)
}

// fetches is what a visitor gets at an address.
func fetches(ctx context.Context, who client.ObjectKey, address string) (string, error) {
	out, err := world.ExecIn(ctx, who, "", "get", "http://"+address+"/")
	return strings.TrimSpace(out.Stdout), err
}
