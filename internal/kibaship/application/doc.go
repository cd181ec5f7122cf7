// Package application checks KibaShip Applications against their Projects, and deletes their
// Deployments with them. It makes no workload.
//
// A reconciliation has these steps:
//
//	observe (observe.go)     all reads, into one Observed
//	check   (checks.go, rules)  pure: which problems there are
//	claim   (controller.go)  the finalizer and the labels of the Project, in one write
//	build   (autobuild.go)   the Deployments that build the newest commits
//	status  (status.go)      pure: phase and conditions
//	patch   (controller.go)  the only write of the status
//
// An Application that is being deleted goes through finalize.go instead.
//
//	reconciler.go          the dependencies
//	observed.go            what a reconciliation has read and done
//	watches.go             the indexes, and which events enqueue which Applications
//	events.go, metrics.go  events and metrics
//
// # What holds
//
// A commit is given to a Deployment once: the write that asks for its build notes the commit in an annotation. Its author may
// ask for another commit afterwards, which stays until the branch moves. Nothing depends on how often or in which order webhooks
// arrive, since only the answer of the git server says which commit is the newest.
//
// The finalizer goes when all Deployments of the Application are deleted, and none of them has a state to send with the token
// of the Application.
package application
