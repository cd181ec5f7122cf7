package challengeinstance

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
)

var (
	freeCapacity = gauge.NewNumber("berg_challengeinstance_free_capacity",
		"Instances that may start before CHALLENGE_MAX_INSTANCES is reached, absent without that limit. Only the leader reports it.")
	nodePortsInUse = gauge.NewNumber("berg_challengeinstance_node_ports",
		"Node ports that the Services of all instances hold. Only the leader reports it.")
)

func init() { metrics.Registry.MustRegister(freeCapacity, nodePortsInUse) }

// errNoLimit says that there is no capacity to report: no limit is set.
var errNoLimit = errors.New("CHALLENGE_MAX_INSTANCES is 0")

// observeFreeCapacity returns how many instances may start until there are as many as limit.
func observeFreeCapacity(reader client.Reader, limit int) func(context.Context) (instances float64, err error) {
	return func(ctx context.Context) (float64, error) {
		if limit == 0 {
			return 0, errNoLimit
		}
		var instances bergv1.ChallengeInstanceList
		if err := reader.List(ctx, &instances, client.UnsafeDisableDeepCopy); err != nil {
			return 0, err
		}
		return float64(max(0, limit-countStarted(instances.Items))), nil
	}
}

// countStarted counts the instances that use capacity, as the admission does.
func countStarted(instances []bergv1.ChallengeInstance) (n int) {
	for i := range instances {
		if isStarted(&instances[i]) {
			n++
		}
	}
	return n
}

func observeNodePorts(reader client.Reader) func(context.Context) (ports float64, err error) {
	return func(ctx context.Context) (float64, error) {
		var services corev1.ServiceList
		err := reader.List(ctx, &services, client.MatchingLabelsSelector{Selector: manifests.OwnershipLabels.Selector()}, client.UnsafeDisableDeepCopy)
		return float64(countNodePorts(services.Items)), err
	}
}

// countNodePorts counts numbers: TCP and UDP on one number share the node port.
func countNodePorts(services []corev1.Service) int {
	numbers := sets.New[int32]()
	for i := range services {
		for _, p := range services[i].Spec.Ports {
			if p.NodePort != 0 {
				numbers.Insert(p.NodePort)
			}
		}
	}
	return len(numbers)
}
