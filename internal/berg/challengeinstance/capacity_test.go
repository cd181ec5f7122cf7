package challengeinstance

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestOnlyWhatHasBegunTakesRoom(t *testing.T) {
	waits := *testInstance(func(i *bergv1.ChallengeInstance) { i.Status = bergv1.ChallengeInstanceStatus{} })
	runs := *testInstance(func(i *bergv1.ChallengeInstance) { i.Status.InstanceID = "1" })
	if got := countStarted([]bergv1.ChallengeInstance{waits, runs, waits, runs}); got != 2 {
		t.Errorf("%d instances take room", got)
	}
}

func TestProtocolsShareANodePort(t *testing.T) {
	service := func(ports ...corev1.ServicePort) corev1.Service {
		return corev1.Service{Spec: corev1.ServiceSpec{Ports: ports}}
	}
	got := countNodePorts([]corev1.Service{
		service(corev1.ServicePort{Protocol: corev1.ProtocolTCP, NodePort: 30001}, corev1.ServicePort{Protocol: corev1.ProtocolUDP, NodePort: 30001}),
		service(corev1.ServicePort{NodePort: 30002}, corev1.ServicePort{}),
		service(),
	})
	if got != 2 {
		t.Errorf("%d node ports", got)
	}
}
