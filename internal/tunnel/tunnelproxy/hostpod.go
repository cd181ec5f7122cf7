package tunnelproxy

import (
	"bufio"
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
)

// hostPod runs server proxies as pods in the network of a node.
type hostPod struct {
	reader client.Client
	writer apply.Writer
	// logs reads what pods write: there the first line is.
	logs      kubernetes.Interface
	work      *jobs.Work
	namespace string
}

// workReady is the wait for the first line of a server proxy.
const workReady = "ready"

// lineTimeout is how long the log is followed before another pass looks what the pod does.
const lineTimeout = 2 * time.Minute

func (h *hostPod) observe(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (Server, error) {
	pod := &corev1.Pod{}
	err := h.reader.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: objectName(p.Name, partServer, p.UID)}, pod)
	if err != nil || !ownerOf(p).Owns(pod) {
		return Server{}, apply.IgnoreAbsent(err)
	}
	// Its log goes with the pod, so no file is told: what it said last is in Ended.
	s := Server{Exists: true, Ended: ended("the server proxy", pod), Waiting: waiting("the server proxy", pod), Address: pod.Status.HostIP}
	if s.Ended != "" || len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
		return s, nil
	}
	s.StartedAt = pod.Status.ContainerStatuses[0].State.Running.StartedAt.Time
	if s.Ready = readyFromStatus(p, s.StartedAt); s.Ready != nil {
		return s, nil
	}
	line, done := jobs.Do(h.work, p.UID, p.Name, workReady, string(pod.UID), func(ctx context.Context) *Line {
		return h.firstLine(ctx, pod.Name)
	})
	if done && line == nil {
		// The log ended, or said nothing in time: what the pod does now decides.
		h.work.Again(p.UID, workReady)
		h.work.Call(p.Name, time.Second)
	}
	s.Ready = line
	s.Waiting = cmp.Or(s.Waiting, "the server proxy has not reached the client proxy yet")
	return s, nil
}

// firstLine follows the log of a pod until the line is there. Its standard error is in it too.
func (h *hostPod) firstLine(ctx context.Context, pod string) *Line {
	ctx, cancel := context.WithTimeout(ctx, lineTimeout)
	defer cancel()
	stream, err := h.logs.CoreV1().Pods(h.namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: serverContainer, Follow: true, LimitBytes: ptr.To[int64](1 << 20),
	}).Stream(ctx)
	if err != nil {
		return nil // another attempt follows
	}
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := parseLine(lines.Bytes()); line != nil {
			return line
		}
	}
	return nil
}

func (h *hostPod) start(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, in Inputs, _ Keys) error {
	return createPod(ctx, h.writer, ownerOf(p), serverPod(in))
}

// renew does nothing: the kubelet brings what the Secret holds.
func (h *hostPod) renew(*tunnelv1.ContainerNetworkTunnelProxy, Keys) error { return nil }

func (h *hostPod) stop(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (bool, error) {
	// The follower of the log would keep on waiting.
	h.work.Cancel(p.UID, workReady)
	return stopPods(ctx, h.writer, p, h.namespace)
}

func (h *hostPod) clean(*tunnelv1.ContainerNetworkTunnelProxy, bool) error { return nil }
