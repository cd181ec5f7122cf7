package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// output is what a command in a container printed.
type output struct {
	stdout, stderr string
}

// exec runs a command in the pod of a challenge's container. A command that
// exits with another code than 0 is an error.
func (c *cluster) exec(ctx context.Context, namespace, container, stdin string, command ...string) (output, error) {
	pods, err := c.pods(ctx, namespace, client.MatchingLabels{bergv1.LabelContainer: container})
	if err != nil {
		return output{}, err
	}
	if len(pods) != 1 {
		return output{}, fmt.Errorf("container %s has %d pods, want 1", container, len(pods))
	}
	return c.execIn(ctx, client.ObjectKeyFromObject(&pods[0]), stdin, command...)
}

func (c *cluster) execIn(ctx context.Context, pod client.ObjectKey, stdin string, command ...string) (output, error) {
	var stdout, stderr bytes.Buffer
	streams := remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}
	if stdin != "" {
		streams.Stdin = strings.NewReader(stdin)
	}
	err := c.stream(ctx, pod, streams, command...)
	out := output{stdout.String(), stderr.String()}
	if err != nil {
		return out, fmt.Errorf("%s in %s: %w: %s", strings.Join(command, " "), pod, err, strings.TrimSpace(out.stderr))
	}
	return out, nil
}

// stream runs a command with these streams until it exits.
func (c *cluster) stream(ctx context.Context, pod client.ObjectKey, streams remotecommand.StreamOptions, command ...string) error {
	request := c.plain.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Command: command, Stdin: streams.Stdin != nil, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.rest, http.MethodGet, request.URL().String())
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, streams)
}

// run is exec for a command that must succeed; it returns standard output.
func (c *cluster) run(ctx context.Context, namespace, container string, command ...string) string {
	GinkgoHelper()
	out, err := c.exec(ctx, namespace, container, "", command...)
	Expect(err).NotTo(HaveOccurred())
	return out.stdout
}

// forward makes a port of a pod reachable from here until the spec ends. It
// returns the address.
func (c *cluster) forward(pod client.ObjectKey, port int32) string {
	GinkgoHelper()
	target := c.plain.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("portforward").URL()
	dialer, err := portforward.NewSPDYOverWebsocketDialer(target, c.rest)
	Expect(err).NotTo(HaveOccurred())

	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"},
		[]string{":" + strconv.Itoa(int(port))}, stop, ready, io.Discard, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	go func() { ended <- forwarder.ForwardPorts() }()
	DeferCleanup(func() {
		close(stop)
		<-ended
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		Fail(fmt.Sprintf("forward port %d of %s: %v", port, pod, err))
	}
	ports, err := forwarder.GetPorts()
	Expect(err).NotTo(HaveOccurred())
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local)))
}

// forwardContainer is forward to the pod of a challenge's container.
func (c *cluster) forwardContainer(ctx context.Context, namespace, container string, port int32) string {
	GinkgoHelper()
	pods, err := c.pods(ctx, namespace, client.MatchingLabels{bergv1.LabelContainer: container})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods).To(HaveLen(1), "pods of container %s", container)
	return c.forward(client.ObjectKeyFromObject(&pods[0]), port)
}
