// Package check makes ChallengeChecks: it has Challenges played by the programs of their
// authors, and reports whether they can be solved.
//
// A check goes one way. Every step can be read from the cluster again, so the operator that takes
// over from an operator that was killed continues where it stopped:
//
//	observe (observe.go)    all reads, into one Observed
//	due     (schedule.go)   pure: when the next check is due
//	order   (order.go)      pure: whether it may begin now, with respect to other checks and to players
//	begin   (controller.go) the status says that a check runs, before anything of it exists
//	check   (checks.go)     pure: its result, or how long to wait
//	plan    (plan.go)       pure: the instance, then the namespace of the solver and its objects
//	build   (build.go)      writes the next objects of the plan
//	status  (status.go)     pure: results and conditions
//	end     (finalize.go)   deletes what belongs to the check
//
// Builders stand in files named after the object they build: instance.go, namespace.go, networkpolicy.go and job.go. One worker does
// it all: no two reconciliations count at the same time how many checks are running.
//
//	reconciler.go  the dependencies and the state in memory
//	observed.go    what a reconciliation has read
//	route.go       what the Gateway says about the routes of an instance that the solver did not reach
//	rights.go      whether this process may make checks
//	watches.go     which events enqueue which checks
//	events.go, metrics.go, late.go  events and metrics, and by how long checks are late
//
// # What holds
//
// The status says that a check runs before an object of it exists, and says that it has ended before an object is deleted. So each
// object is known to belong to the current check or to an ended one, also by a process that did not create it.
//
// A ChallengeCheck has the finalizer only while a check runs. It can be deleted without an operator that runs checks.
//
// No flag gets into a status, an event or a log: every output of a solver and every message of the API server passes redact.
//
// # After a kill
//
//	the finalizer, no run in the status  begin takes the finalizer off, or begins the check
//	a run, no object                     run creates the next object
//	a result, objects                    end deletes them, and the result stays
//	no operator for long                 instance and Job expire by themselves, and the check is broken off
package check
