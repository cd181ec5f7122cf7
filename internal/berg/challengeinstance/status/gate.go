package status

import (
	"fmt"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// Gate is the gate of this project as the operator sees it.
type Gate struct {
	// Namespace of the gate.
	Namespace string
	// Replicas are the addresses at which the replicas that are ready answer. AbsentSince is when there was none, zero while there is one.
	Replicas    []string
	AbsentSince time.Time
}

// Unserved is why the gate does not serve an instance.
type Unserved struct{ Reason, Message string }

// findAbsence returns the obstacle that no replica of the gate is ready. While a single replica is replaced, there is none for a moment.
func (g *Gate) findAbsence(gateway view.Gateway) *obstacle {
	if g == nil || len(g.Replicas) > 0 {
		return nil
	}
	return &obstacle{
		condition: bergv1.ConditionRoutesCreated, reason: bergv1.ReasonGatewayNotReady, refused: true, settles: g.AbsentSince.Add(settleTime),
		message: fmt.Sprintf("no replica of the gate, which serves %s, is ready in namespace %s: kubectl get pods -n %s -l app.kubernetes.io/name=berg-gate", gateway, g.Namespace, g.Namespace),
	}
}

// AskedHost is a host name of an instance about which the gate is asked. Connects: the gate also connects to the pods behind it.
type AskedHost struct {
	Name     string
	Connects bool
}

// ToAsk returns the hosts about which each replica of the gate is asked before an instance is Running for the first time. It is empty
// while a step is missing.
func ToAsk(out Outcome, now time.Time) (all []AskedHost) {
	for _, routed := range routedPorts(out, now) {
		all = append(all, AskedHost{routed.host, routed.port.ConnectsAtStart()})
	}
	return all
}

// NewUnserved returns why the gate does not serve an instance, by the answer of a replica. unreached: it serves the hosts, and does not
// reach a pod.
func NewUnserved(gateway view.Gateway, answer string, unreached bool) *Unserved {
	reason := bergv1.ReasonRoutePending
	if unreached {
		reason = bergv1.ReasonPodUnreached
	}
	return &Unserved{reason, fmt.Sprintf("%s: %s", gateway, answer)}
}
