// Package challengeinstance admits, builds, watches and terminates ChallengeInstances.
//
// Three controllers share the instances, and no two of them write the same one:
//
//	admit   (admit.go)       one worker: which of those that were not started may start
//	run     (controller.go)  those that were started, and all deletions (finalize.go)
//	expire  (expiry.go)      requests the deletion of those that expire
//
// A fourth one deletes namespaces whose instance no longer exists (orphans.go). The reconciliation of an instance that was
// started is that of kit/reconcile, with these steps:
//
//	observe   (observe.go)    all reads, once, into one status.Observed
//	check     (status)        pure: may this instance be built, and if not, why
//	decide    (rollout.go, prove.go)  what the status must have before objects are written: then this reconciliation ends here
//	plan      (manifests)     pure: every object it should consist of
//	apply     (build.go, kit/apply)  the only writes of children
//	connect   (controller.go) do its ports accept connections
//	status    (status)        pure: phase, conditions and endpoints, written in one patch
//
// The package manifests has the builders, in files named after the object they build; the
// package status has the checks, the conditions and the times. Neither has a client or a
// clock.
//
// Other files:
//
//	reconciler.go   what all of this needs
//	finalize.go     brings a deletion a step further
//	admit_round.go  all that one decision of package admission is made of
//	admit_list.go   lists the instances, from the cache or from the API server
//	queuemetrics.go how many instances wait
//	revisions.go    deletes stored contents that no instance names
//	watches.go      which events lead to a reconciliation, and with which priority
//	predicates.go   the filters and mappings of these events
//	terminate.go    requests the deletion of one instance
//	nodeports.go    writes Services and keeps their node ports
//	pullsecrets.go  copies of the pull secret, and which of them a container uses
//	policies.go     which kinds of network policy are used, and the removal of others
//	retry.go        pods that Kubernetes refused
//	keep.go         what a record reads of an instance before its namespace is deleted
//	events.go, metrics.go  what is reported
package challengeinstance
