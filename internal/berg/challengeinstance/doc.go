// Package challengeinstance builds, watches and terminates ChallengeInstances.
//
// A reconciliation has these steps:
//
//	observe (observe.go)     all reads, into one status.Observed
//	check   (status)         pure: may this instance be built, and if not, why
//	plan    (manifests)      pure: every object it should consist of
//	apply   (build.go, kit/apply)  the only writes of children
//	status  (status)         pure: phase, conditions and endpoints
//	patch   (controller.go)  the only write of the status
//
// The package manifests has the builders, in files named after the object they build; the
// package status has the checks, the conditions and the times. Neither has a client or a
// clock. Three more controllers end instances: one requests the deletion of instances that
// expire (expiry.go), one carries out deletions (finalize.go), one deletes namespaces whose
// instance no longer exists (orphans.go).
//
// Other files:
//
//	turns.go        one instance of an owner at a time
//	queue.go        limits on the number of instances
//	start.go        persists what a live instance keeps: its ID, the Challenge, the defaults
//	nodeports.go    writes Services and keeps their node ports
//	pullsecrets.go  copies of the pull secret, and which of them a container uses
//	policies.go     which kinds of network policy are used, and the removal of others
//	retry.go        pods that Kubernetes refused
//	keep.go         what a record reads of an instance before its namespace is deleted
//	events.go, metrics.go  what is reported
package challengeinstance
