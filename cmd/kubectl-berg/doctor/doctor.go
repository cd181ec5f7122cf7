package doctor

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

// Result is the result of one check.
type Result struct {
	Check string        `json:"check"`
	Level console.Level `json:"level"`
	Text  string        `json:"text"`
	Do    string        `json:"do,omitempty"`
}

// Right is a permission that a command needs.
type Right struct {
	Verb, Resource string
	Allowed        bool
	// For names the commands that need it.
	For string
}

// Served is an API group, empty if it is not served.
type Served struct {
	// Resources are the resources of the required version.
	Resources []string
	// Release is the release of the CRDs, as the Gateway API annotates it.
	Release string
}

// TLS is the result of a TLS handshake with a listener.
type TLS struct {
	Address string
	// Err is the reason why there was no connection, or why the certificate is not trusted.
	Err string
	// Untrusted reports that there was a connection, with a certificate that browsers reject.
	Untrusted bool
	NotAfter  time.Time
	Issuer    string
}

// Survey is everything that was read. Fields that are nil were not found. Unreadable has what could not
// be read, by name.
type Survey struct {
	Now time.Time
	// Skew is how far the API server's clock is ahead of this machine's clock.
	Skew      time.Duration
	SkewKnown bool
	Server    string
	Plugin    string
	APIs      map[string]Served
	Rights    []Right
	// Deployment is the operator's, Pods its pods.
	Deployment *appsv1.Deployment
	Pods       []corev1.Pod
	// Leader is the holder of the operator's lease, Renewed the time of its last renewal, LeaseTime
	// its duration.
	Leader    string
	Renewed   time.Time
	LeaseTime time.Duration
	Gateway   *gatewayv1.Gateway
	// GatewayRead: the Gateway was looked for. GatewayClass is its class.
	GatewayRead  bool
	GatewayClass *gatewayv1.GatewayClass
	// ProcessLimits are the limits of processes of a pod by node, Platform the state of the platform API.
	ProcessLimits map[string]int64
	Platform      *view.Platform
	// HTTPS and TLSListener are the listeners of the Gateway; nil if they were not tried.
	HTTPS, TLSListener *TLS
	// Names are the addresses of the names that DNS resolved, NameErrors the errors of the others.
	Names      map[string][]string
	NameErrors map[string]string
	NodeIPs    []string
	Nodes      []corev1.Node
	NodePorts  int
	// PodsOnNodes are the numbers of pods on each node, and Reserved the sums of their requests; nil if they were not
	// read.
	PodsOnNodes map[string]int
	Reserved    map[string]corev1.ResourceList
	Challenges  []bergv1.Challenge
	Instances   []bergv1.ChallengeInstance
	// Checks and Records are read by Event; nil if they were not read.
	Checks  []bergv1.ChallengeCheck
	Records []metav1.PartialObjectMetadata
	// Uses is how players use instances; nil without the gate, or if it was not read.
	Uses *view.Uses
	// InstancePods are the pods of all instances.
	InstancePods []corev1.Pod
	Quotas       []corev1.ResourceQuota
	PullSecret   Presence
	// CiliumAgents is the DaemonSet of Cilium's agents: Present if one of its pods is ready.
	CiliumAgents Presence
	// Policies are the states of the admission policies by their names, without policies of API groups that are not
	// served.
	Policies map[string]Policy
	// Sources are the settings from envFrom, Shared is the content of the ConfigMap berg-operator-settings, and Unread has the objects
	// that could not be read.
	Sources map[string]string
	Shared  map[string]string
	// SharedProblem has the errors of programs about the content of that ConfigMap, "" if none has reported one.
	SharedProblem string
	// Refused are the settings with which a program does not start, by its name.
	Refused map[string]string
	// API is the container of a replica of the platform API, and Gate of the gate, nil without one.
	API, Gate  *corev1.Container
	Unread     []string
	Unreadable map[string]string
}

// Policy is the state of an admission policy of the operator.
type Policy struct {
	// Gap is the reason why the API server does not enforce it; empty if it does.
	Gap string
	// Hidden: the user may not see it.
	Hidden bool
	// Needs are the API groups that start nothing new without it.
	Needs []string
}

// Presence reports whether an object exists.
type Presence string

// The presences.
const (
	NotChecked Presence = ""
	Present    Presence = "there"
	Missing    Presence = "missing"
	Hidden     Presence = "hidden"
)

// result is one result as a list, as checks return it. do is the remedy, empty where there is none.
func result(check string, level console.Level, text, do string) []Result {
	return []Result{{Check: check, Level: level, Text: text, Do: do}}
}

// askAdministrator is the remedy where the user lacks a permission.
const askAdministrator = "Ask an administrator to run kubectl berg doctor, or for permission to read it."

// hidden reports objects that could not be read.
func (s Survey) hidden(check, kind string) ([]Result, bool) {
	if message := s.Unreadable[kind]; message != "" {
		return result(check, console.Unknown, message, askAdministrator), true
	}
	return nil, false
}

// oneLine replaces control characters, because texts may be from the cluster.
func oneLine(results []Result) []Result {
	for i := range results {
		results[i].Text, results[i].Do = console.OneLine(results[i].Text), console.OneLine(results[i].Do)
	}
	return results
}
