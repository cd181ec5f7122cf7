package report

import (
	"time"

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
	// Operator is the Deployment of the operator, nil if it was not found.
	Operator Object
	Settings []Setting
	Checks   []doctor.Result
	Overview overview.Overview
	Nodes    []Object
	// Pods are the pods of the operator, and of instances with a problem.
	Pods       []Object
	Challenges []Object
	Instances  []Object
	// Solvers are the ChallengeChecks.
	Solvers []Object
	Events  []Object
	Logs    []Log
	// Missing names objects that could not be read, and parts that were left out because of their size.
	Missing []string
}

// Setting is a setting of the operator. Value is empty if Hidden has a reason not to show it.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value,omitempty"`
	Hidden string `json:"hidden,omitempty"`
}

// Log is the end of a log of the operator.
type Log struct {
	Pod       string
	Container string
	// Previous: the log is of the run before the last restart.
	Previous bool
	Text     string
}
