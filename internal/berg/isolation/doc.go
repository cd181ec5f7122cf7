// Package isolation finds out whether the cluster enforces network policies.
//
// An API server stores policies whether they are enforced or not; a network plugin that does not
// leaves every instance open, and nothing says so. So a pod in a namespace of its own connects to
// the operator: without a policy, under the policy of an instance, and without again. See
// docs/adr/0015-isolation-is-checked-by-packets.md.
//
//	check.go    the three attempts, the objects that are left, and the condition on the operator's pod
//	plan.go     pure: the namespace, the Deployment and the policies of a check
//	probe.go    the program in the pod
//	result.go   pure: what the readiness of the pod says, and the results
//	latest.go   the result as instances read it
//	metrics.go  the result as a metric
//
// # What holds
//
// Only yes, no, yes counts as enforced. A single no may be a broken network, and a check that cannot be made says nothing about
// the cluster: the metric is absent then, and the status of instances stays as it is.
//
// The check blocks nothing. Instances start before it, during it and after it, with any result.
//
// An operator that is killed during a check leaves one namespace, whose name and annotation have the UID of the operator's
// namespace. The next check deletes it and waits until it is gone, and the garbage collector does when the installation is
// removed.
package isolation
