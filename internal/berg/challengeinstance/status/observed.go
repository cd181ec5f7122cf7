package status

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Candidate is an instance with the content that it will be built from.
type Candidate struct {
	Instance *bergv1.ChallengeInstance
	// Key names the Challenge of the instance.
	Key types.NamespacedName
	// Challenge is nil if it does not exist.
	Challenge *bergv1.Challenge
	// Nodes has the features that the nodes support.
	Nodes nodes.Support
	// Pinned is the snapshot that the instance was started with; nil before the start, and if it is Unreadable.
	Pinned *manifests.Snapshot
	// Prepared: no instance of a player has taken it over yet. It needs neither an owner nor a flag.
	Prepared bool
	// Unreadable says why the content of the start cannot be read; nil if it can, and before the start.
	Unreadable error
}

// Observed is everything that decides what happens to an instance.
type Observed struct {
	Candidate
	// Policies are the kinds of network policy that isolate the instance: NetworkPolicyAuto is
	// resolved.
	Policies config.NetworkPolicy
	// Enforced is whether the cluster enforces network policies: Unknown until it was checked.
	Enforced metav1.ConditionStatus
	// Namespace is the namespace of the owner, nil if it does not exist. It need not belong to the instance.
	Namespace *corev1.Namespace
	// Deployments of the instance by container, as before the reconciliation. Their status has
	// only what FindRefusal reads.
	Deployments map[string]*appsv1.Deployment
	// Pods of the instance.
	Pods []corev1.Pod
	// Replaced are the digests of the images that newer instances run under the same names, by container.
	Replaced map[string]string
	// Ways are the ways by which players reach the instance, and Listeners name the Gateway of the settings.
	Ways      Ways
	Listeners config.Gateway
	// Published is the cause that the routes of the instance name for players. Its status had it before the reconciliation.
	Published bergv1.Cause
	// Opened: the programs of pods that are not ready yet accept connections. Their nodes find that out later.
	Opened bool
	// Limited: there is a limit on the number of instances, and it lets this one start.
	Limited bool
	// Sandboxes says, by the UID of a pod, why the container runtime rejects its sandbox; nil if all pods are ready.
	Sandboxes map[types.UID]string
}

// Outcome has the observations and the results of one reconciliation. The status is computed from it.
type Outcome struct {
	Observed
	// Problem is what stopped the reconciliation; nil if every object is in place.
	Problem *outcome.Problem
	// Endpoints are the endpoints of every port if all Services are in place: empty without ports, nil while unknown.
	Endpoints []manifests.Endpoint
	// Written is when the reconciliation had written objects.
	Written Written
	// Connecting: the pods are ready, and the first connection to the public ports is being waited for.
	Connecting bool
	// Gate is whether the operator has connected to the Gateway, and Unserved the answer of a replica of the gate that does not serve
	// the instance.
	Gate     Connection
	Unserved *Unserved
	// Adopted is set by a reconciliation that only decides about the content of the instance, nil by the others.
	Adopted *Adoption
	// NamespaceTokenHash is set by a reconciliation that only prepares the creation of the namespace.
	NamespaceTokenHash string
	// RequeueAfter is when to check again the pods that do not end, zero for never.
	RequeueAfter time.Duration
}

// containers returns the containers that the instance runs or will run.
func (c Candidate) containers() []bergv1.Container {
	if c.Pinned != nil {
		return c.Pinned.Containers
	}
	return manifests.Normalize(c.Challenge).Containers
}

// Withdrawn reports whether the Challenge of a started instance no longer exists. The instance
// does not need it.
func Withdrawn(c Candidate) bool {
	return c.Instance.Status.ChallengeRevision != "" && c.Challenge == nil
}

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

// Route is a route of an instance as its controller answers it.
type Route struct {
	Created time.Time
	Parents []gatewayv1.RouteParentStatus
}

// Service is a Service of an instance, and whether it leads to a pod.
type Service struct {
	Created time.Time
	Leads   bool
}

// Ways are the ways by which players reach an instance, as they were observed.
type Ways struct {
	Gateway view.Gateway
	// Gate is nil for a Gateway of another controller.
	Gate *Gate
	// Routes has the routes that exist, by their name.
	Routes map[string]Route
	// Services has the Services that exist, by their name.
	Services map[string]Service
}

// Connection is whether the operator has connected to the Gateway of an instance.
type Connection int

// The connections.
const (
	// ConnectionUnknown: this process has not tried.
	ConnectionUnknown Connection = iota
	ConnectionMade
	// ConnectionNotMade: the Gateway is not reached from the operator.
	ConnectionNotMade
)
