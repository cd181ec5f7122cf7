// Package report makes a support bundle, with which another person can find out why an event does not work, without
// flags and without secrets. Its types have no field for them: a flag, an environment variable, a command, the content
// of a Secret or of a file cannot get in by a mistake. Redactor then removes flags and secrets that other programs may
// have quoted. It is pure.
package report

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/overview"
)

// The sizes of a bundle. Together they are its maximum, about 17 MiB before it is compressed. Lists keep objects with a
// problem and the latest ones first.
const (
	// MaxLogBytes is the size of a log, from its end.
	MaxLogBytes = 1 << 20
	// MaxLogs is the number of logs.
	MaxLogs = 6
	// maxFileBytes is the size of each other file; the rest is cut off.
	maxFileBytes = 1 << 20
	// MaxEvents is the number of events.
	MaxEvents = 2000
	// MaxInstances is the number of instances.
	MaxInstances = 1000
	// MaxPods is the number of pods of instances.
	MaxPods = 500
)

// Bundle is the content of a report.
type Bundle struct {
	At time.Time
	// Plugin is the version of this program, Server the version of Kubernetes.
	Plugin, Server string
	Operator       *Operator
	Settings       []Setting
	Checks         []doctor.Result
	Overview       overview.Overview
	Nodes          []Node
	Pods           []Pod
	Challenges     []Challenge
	Instances      []Instance
	Solvers        []Solver
	Events         []Event
	Logs           []Log
	// Missing names objects that could not be read, and parts that were left out because of their size.
	Missing []string
}

// Operator is the Deployment of the operator.
type Operator struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Image      string `json:"image"`
	Generation int64  `json:"generation"`
	Observed   int64  `json:"observedGeneration"`
	Replicas   int32  `json:"replicas"`
	Updated    int32  `json:"updatedReplicas"`
	Ready      int32  `json:"readyReplicas"`
	// Leader is the pod that holds the lease, Renewed when it renewed it last.
	Leader     string      `json:"leader,omitempty"`
	Renewed    *time.Time  `json:"renewedAt,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Setting is a setting of the operator. Value is empty if Hidden has a reason not to show it.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`
	Hidden string `json:"hidden,omitempty"`
}

// Condition is a condition of any object.
type Condition struct {
	Type    string       `json:"type"`
	Status  string       `json:"status"`
	Reason  string       `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
	Since   *metav1.Time `json:"since,omitempty"`
}

// Node is a node of the cluster.
type Node struct {
	Name       string      `json:"name"`
	Kubelet    string      `json:"kubelet"`
	Runtime    string      `json:"containerRuntime"`
	OS         string      `json:"os"`
	Arch       string      `json:"arch"`
	Cordoned   bool        `json:"cordoned,omitempty"`
	Taints     []string    `json:"taints,omitempty"`
	CPU        string      `json:"cpu"`
	Memory     string      `json:"memory"`
	Pods       string      `json:"pods"`
	PodsInUse  int         `json:"podsInUse"`
	CPUInUse   string      `json:"cpuReserved,omitempty"`
	MemInUse   string      `json:"memoryReserved,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Pod is the state of a pod. It has no command, no argument, no variable, no volume and no output.
type Pod struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Node       string      `json:"node,omitempty"`
	Phase      string      `json:"phase"`
	Reason     string      `json:"reason,omitempty"`
	Message    string      `json:"message,omitempty"`
	Created    metav1.Time `json:"createdAt"`
	Deleted    bool        `json:"terminating,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	Containers []Container `json:"containers,omitempty"`
}

// Container is the state of a container.
type Container struct {
	Name     string `json:"name"`
	Image    string `json:"image"`
	ImageID  string `json:"imageID,omitempty"`
	Ready    bool   `json:"ready"`
	Restarts int32  `json:"restarts"`
	// State and Last are Waiting, Running or Terminated, with the reason. The message of a container that ended is its own
	// output, and left out.
	State State  `json:"state"`
	Last  *State `json:"lastState,omitempty"`
}

// State is a state of a container.
type State struct {
	State    string       `json:"state"`
	Reason   string       `json:"reason,omitempty"`
	Message  string       `json:"message,omitempty"`
	ExitCode *int32       `json:"exitCode,omitempty"`
	Started  *metav1.Time `json:"startedAt,omitempty"`
	Finished *metav1.Time `json:"finishedAt,omitempty"`
}

// Challenge is the technical part of a Challenge, without the texts for players, and without flags, variables and
// commands.
type Challenge struct {
	Namespace    string               `json:"namespace"`
	Name         string               `json:"name"`
	Generation   int64                `json:"generation"`
	Created      metav1.Time          `json:"createdAt"`
	Frozen       bool                 `json:"frozen,omitempty"`
	MaxInstances int32                `json:"maxInstances,omitempty"`
	Outbound     bool                 `json:"allowOutboundTraffic,omitempty"`
	HideUntil    string               `json:"hideUntil,omitempty"`
	Prepull      bool                 `json:"prepull,omitempty"`
	Containers   []ChallengeContainer `json:"containers,omitempty"`
	Conditions   []Condition          `json:"conditions,omitempty"`
}

// ChallengeContainer is a container of a Challenge. Flag is how it gets the flag: env, content or executable.
type ChallengeContainer struct {
	Hostname     string   `json:"hostname"`
	Image        string   `json:"image"`
	Ports        []string `json:"ports,omitempty"`
	Flag         string   `json:"dynamicFlag,omitempty"`
	Probe        bool     `json:"readinessProbe,omitempty"`
	Requests     string   `json:"requests,omitempty"`
	Limits       string   `json:"limits,omitempty"`
	Capabilities []string `json:"additionalCapabilities,omitempty"`
	Sandbox      string   `json:"sandbox,omitempty"`
	RuntimeClass string   `json:"runtimeClassName,omitempty"`
}

// Instance is the state of an instance. Its addresses are left out, because players alone know them.
type Instance struct {
	Namespace         string       `json:"namespace"`
	Name              string       `json:"name"`
	UID               string       `json:"uid"`
	Challenge         string       `json:"challenge"`
	Owner             string       `json:"owner"`
	Generation        int64        `json:"generation"`
	Observed          int64        `json:"observedGeneration"`
	Created           metav1.Time  `json:"createdAt"`
	Deleted           *metav1.Time `json:"deletedAt,omitempty"`
	Finalizers        []string     `json:"finalizers,omitempty"`
	Timeout           string       `json:"timeout,omitempty"`
	TerminationReason string       `json:"terminationReason,omitempty"`
	Phase             string       `json:"phase"`
	Cause             string       `json:"cause,omitempty"`
	InNamespace       string       `json:"instanceNamespace,omitempty"`
	Started           *metav1.Time `json:"startedAt,omitempty"`
	ReadyAt           *metav1.Time `json:"readyAt,omitempty"`
	Expires           *metav1.Time `json:"expiresAt,omitempty"`
	Addresses         int          `json:"addresses"`
	Frozen            bool         `json:"frozen,omitempty"`
	// Start has the stages of the start that are over, in one line.
	Start      string      `json:"start,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Solver is the state of a ChallengeCheck, without the text of its solver.
type Solver struct {
	Namespace  string       `json:"namespace"`
	Name       string       `json:"name"`
	Challenge  string       `json:"challenge"`
	Image      string       `json:"image"`
	Every      string       `json:"every,omitempty"`
	Suspended  bool         `json:"suspended,omitempty"`
	Next       *metav1.Time `json:"nextRunAt,omitempty"`
	Results    []string     `json:"results,omitempty"`
	Conditions []Condition  `json:"conditions,omitempty"`
}

// Event is an event of Kubernetes.
type Event struct {
	Last    metav1.Time `json:"last"`
	Count   int32       `json:"count"`
	Type    string      `json:"type"`
	Reason  string      `json:"reason"`
	About   string      `json:"about"`
	From    string      `json:"from,omitempty"`
	Message string      `json:"message"`
}

// Log is the end of a log of the operator.
type Log struct {
	Pod       string
	Container string
	// Previous: the log is of the run before the last restart.
	Previous bool
	Text     string
}
