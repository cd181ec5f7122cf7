package challengeinstance

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestOnlyWhatHasBegunTakesRoom(t *testing.T) {
	waits := *testInstance(func(i *bergv1.ChallengeInstance) { i.Status = bergv1.ChallengeInstanceStatus{} })
	runs := *testInstance(func(i *bergv1.ChallengeInstance) { i.Status.InstanceID = "1" })
	if got := countStarted([]bergv1.ChallengeInstance{waits, runs, waits, runs}); got != 2 {
		t.Errorf("%d instances take room", got)
	}
}

// listed serves a list, as the cache does.
type listed struct {
	client.Reader
	items []bergv1.ChallengeInstance
}

func (l listed) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*bergv1.ChallengeInstanceList).Items = slices.Clone(l.items)
	return nil
}

// Prepared instances are the operator's. A user who labels an instance does not hide it from the figures.
func TestALabelHidesNoInstance(t *testing.T) {
	labelled := func(namespace string) bergv1.ChallengeInstance {
		return *testInstance(func(i *bergv1.ChallengeInstance) {
			i.Namespace, i.Labels, i.Status.InstanceID = namespace, map[string]string{bergv1.LabelPrepared: "u"}, "1"
		})
	}
	r := &Reconciler{Namespace: "berg-operator-system"}
	reader := playerReader{listed{items: []bergv1.ChallengeInstance{labelled("berg-operator-system"), labelled("team")}}, r.isPrepared}
	if free, err := observeFreeCapacity(reader, 10)(t.Context()); err != nil || free != 9 {
		t.Errorf("%.0f instances may start, %v", free, err)
	}
	if all, err := observeInstances(t.Context(), reader); err != nil || len(all) != 1 {
		t.Errorf("%d instances are counted, %v", len(all), err)
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
