package deployed

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
)

// labelContainer is LabelContainer of api/berg/v1. This package serves the suites of all API groups and imports
// none: so make test knows which suites a change of one group can reach.
const labelContainer = "berg.norelect.ch/container"

// Output is what a command in a container printed.
type Output struct {
	Stdout, Stderr string
}

// Exec runs a command in the pod of a challenge's container. A command that
// exits with another code than 0 is an error.
func (c *Cluster) Exec(ctx context.Context, namespace, container, stdin string, command ...string) (Output, error) {
	pods, err := c.Pods(ctx, namespace, client.MatchingLabels{labelContainer: container})
	if err != nil {
		return Output{}, err
	}
	if len(pods) != 1 {
		return Output{}, fmt.Errorf("container %s has %d pods, want 1", container, len(pods))
	}
	return c.ExecIn(ctx, client.ObjectKeyFromObject(&pods[0]), stdin, command...)
}

// ExecIn is Exec for a pod whose name is known, with the text of standard input.
func (c *Cluster) ExecIn(ctx context.Context, pod client.ObjectKey, stdin string, command ...string) (Output, error) {
	var stdout, stderr bytes.Buffer
	streams := remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}
	if stdin != "" {
		streams.Stdin = strings.NewReader(stdin)
	}
	err := c.Stream(ctx, pod, streams, command...)
	out := Output{stdout.String(), stderr.String()}
	if err != nil {
		return out, fmt.Errorf("%s in %s: %w: %s", strings.Join(command, " "), pod, err, strings.TrimSpace(out.Stderr))
	}
	return out, nil
}

// Stream runs a command with these streams until it exits.
func (c *Cluster) Stream(ctx context.Context, pod client.ObjectKey, streams remotecommand.StreamOptions, command ...string) error {
	request := c.Plain.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Command: command, Stdin: streams.Stdin != nil, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Rest, http.MethodGet, request.URL().String())
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, streams)
}

// Run is Exec for a command that must succeed; it returns standard output.
func (c *Cluster) Run(ctx context.Context, namespace, container string, command ...string) string {
	GinkgoHelper()
	out, err := c.Exec(ctx, namespace, container, "", command...)
	Expect(err).NotTo(HaveOccurred())
	return out.Stdout
}

// Forward makes a port of a pod reachable from here until the spec ends. It
// returns the address.
func (c *Cluster) Forward(pod client.ObjectKey, port int32) string {
	GinkgoHelper()
	target := c.Plain.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("portforward").URL()
	dialer, err := portforward.NewSPDYOverWebsocketDialer(target, c.Rest)
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

// ForwardContainer is Forward to the pod of a challenge's container.
func (c *Cluster) ForwardContainer(ctx context.Context, namespace, container string, port int32) string {
	GinkgoHelper()
	pods, err := c.Pods(ctx, namespace, client.MatchingLabels{labelContainer: container})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods).To(HaveLen(1), "pods of container %s", container)
	return c.Forward(client.ObjectKeyFromObject(&pods[0]), port)
}
