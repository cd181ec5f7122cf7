package isolation

import (
	"bytes"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReachOf(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := func(c ...corev1.ContainerStatus) corev1.Pod {
		return corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: c}}
	}
	ready := pod(corev1.ContainerStatus{State: running, Ready: true})
	ending := *ready.DeepCopy()
	ending.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		pods []corev1.Pod
		want reach
	}{
		"no pod":                {nil, unknown},
		"not started":           {[]corev1.Pod{pod()}, unknown},
		"pulls its image":       {[]corev1.Pod{pod(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}})}, unknown},
		"ended":                 {[]corev1.Pod{pod(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}})}, unknown},
		"was restarted":         {[]corev1.Pod{pod(corev1.ContainerStatus{State: running, RestartCount: 1})}, unknown},
		"ready":                 {[]corev1.Pod{ready}, reached},
		"ready, and ends":       {[]corev1.Pod{ending}, unknown},
		"one of two":            {[]corev1.Pod{ready, ready}, unknown},
		"runs and is not ready": {[]corev1.Pod{pod(corev1.ContainerStatus{State: running})}, notReached},
	} {
		if got := readReach(tc.pods); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestPodProblem(t *testing.T) {
	for want, pods := range map[string][]corev1.Pod{
		"there is no pod": nil,
		"ImagePullBackOff": {{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}},
		}}}},
		"Unschedulable": {{Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"},
		}}}},
		"it runs and does not reach the operator": {{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}}}},
	} {
		if got := podProblem(pods); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestProbeFindsAListener(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	var said bytes.Buffer
	if code := Probe([]string{address}, &said); code != 0 {
		t.Errorf("exit code %d: %s", code, &said)
	}
	listener.Close()
	if code := Probe([]string{address}, &said); code != 1 || said.Len() == 0 {
		t.Errorf("no listener: exit code %d, output %q", code, &said)
	}
}
