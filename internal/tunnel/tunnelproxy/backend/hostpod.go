package backend

import (
	"bufio"
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/tunnel/jobs"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/credentials"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/manifests"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
)

// hostPod runs server proxies as pods in the network of a node.
type hostPod struct {
	reader client.Client
	writer apply.Writer
	// logs reads the logs of pods, for the first line.
	logs      kubernetes.Interface
	jobs      *jobs.Runner
	namespace string
	clock     clock.PassiveClock
}

func retryLine(found bool) time.Duration {
	if found {
		return 0
	}
	return lineRetryInterval
}

// JobReady is the wait for the first line of a server proxy.
const JobReady = "ready"

const (
	// lineTimeout is how long the first line is waited for before the pod or process is observed again.
	lineTimeout = 2 * time.Minute
	// lineRetryInterval is between two such waits.
	lineRetryInterval = time.Second
)

const notReady = "the server proxy has not reached the client proxy yet"

// Observe reads the state of the pod. The first line of its log is read once, by a job, and then comes from the
// status: the log may have been rotated since. The result is for one pod UID, so a line of an earlier pod never
// counts.
func (h *hostPod) Observe(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (status.Server, error) {
	pod := &corev1.Pod{}
	err := h.reader.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: pairobjects.Name(p.Name, pairobjects.PartServer, p.UID)}, pod)
	if err != nil || !pairobjects.OwnerFor(p).Owns(pod) {
		return status.Server{}, apply.IgnoreAbsent(err)
	}
	// The log is deleted with the pod, so there is no file; the last lines are in Ended.
	s := status.Server{Exists: true, Ended: status.Ended(proxyName, pod), Waiting: status.Waiting(proxyName, pod), Address: pod.Status.HostIP}
	if s.Ended != "" || len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Running == nil {
		return s, nil
	}
	s.StartedAt = pod.Status.ContainerStatuses[0].State.Running.StartedAt.Time
	if s.Ready = status.LineFromStatus(p, s.StartedAt); s.Ready != nil {
		return s, nil
	}
	s.Ready = jobs.Do(h.jobs, jobs.Job[*status.Line]{
		UID: p.UID, Name: p.Name, Kind: JobReady, Input: string(pod.UID),
		Run:   func(ctx context.Context) *status.Line { return h.firstLine(ctx, pod.Name) },
		Retry: func(line *status.Line, _ int) time.Duration { return retryLine(line != nil) },
	}, h.clock.Now()).Value
	s.Waiting = cmp.Or(s.Waiting, notReady)
	return s, nil
}

// firstLine follows the log of a pod until the line is written. The log has standard error too.
func (h *hostPod) firstLine(ctx context.Context, pod string) *status.Line {
	ctx, cancel := context.WithTimeout(ctx, lineTimeout)
	defer cancel()
	stream, err := h.logs.CoreV1().Pods(h.namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container: manifests.ServerContainer, Follow: true, LimitBytes: ptr.To[int64](1 << 20),
	}).Stream(ctx)
	if err != nil {
		return nil // it is retried
	}
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if line := status.ParseLine(lines.Bytes()); line != nil {
			return line
		}
	}
	return nil
}

func (h *hostPod) Start(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, in manifests.Inputs, _ credentials.Keys) error {
	return CreatePod(ctx, h.writer, pairobjects.OwnerFor(p), manifests.ServerPod(in))
}

// Renew does nothing: the kubelet updates the files of a Secret.
func (h *hostPod) Renew(*tunnelv1.ContainerNetworkTunnelProxy, credentials.Keys) error { return nil }

func (h *hostPod) Stop(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (bool, error) {
	h.jobs.Cancel(p.UID, JobReady) // it would wait on
	return StopPods(ctx, h.writer, p, h.namespace)
}

func (h *hostPod) Clean(*tunnelv1.ContainerNetworkTunnelProxy, bool) error { return nil }
