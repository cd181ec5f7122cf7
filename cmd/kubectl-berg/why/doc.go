// Package why finds the first problem of an instance and a remedy. It is pure: it reads the status and, where that is
// not enough, the pods and events that its user may read.
//
//	why.go      Explain: the checks, in the order in which one problem hides another
//	finding.go  View, Finding, and the pods that belong to the instance
//	reasons.go  the explanation of a step that failed
//	pods.go     why pods are not ready
//	advice.go   remedies by the messages of registries, schedulers, container runtimes and logs
//	group.go    instances with the same problem
//
// # How messages are read
//
// A message of Kubernetes is no API: its words differ between versions and container runtimes. So a message only selects a remedy,
// the most certain cases first, and a case that nothing matches quotes it or names the command that shows more. The level comes from
// conditions and times alone.
//
// Without the right to read pods, conditions of the operator have to be enough: its messages name the container, the exit code and
// the reason, in the forms of the patterns in pods.go.
package why
