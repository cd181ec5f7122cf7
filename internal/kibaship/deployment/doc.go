// Package deployment builds Applications, and records the results.
//
// A reconciliation of a Deployment goes one way:
//
//	observe (observe.go, tekton.go)        all reads, into one Observed
//	check   (checks.go)                    pure: the problem that blocks a run
//	plan    (pipeline.go, pipelinerun.go)  pure: the Pipeline and the PipelineRun
//	apply   (build.go, kit/apply)          the only writes of children
//	status  (status.go)                    pure: phase, conditions, image, history
//	patch   (controller.go)                the only write of the status
//
// A run that failed is explained by failure.go: with what its step reported, or the last lines of its log.
//
// Builders stand in files named after the object they build; task.go describes the steps in the
// pods of a run, and clone.sh is the script of the first step. The programs of the other steps are in the packages source and registry.
//
//	inputs.go    all that a plan depends on, and the names that follow from it
//	queue.go     which Deployment starts a run next
//	resolve.go   the digest of a DockerImage
//	usage.go     the builds that a Project is charged with, and the finalizer
//	observed.go  what a reconciliation has read and done
//	watches.go   which events enqueue which Deployments
//	events.go, metrics.go  events and metrics
//	reconciler.go, hash.go  the dependencies, and the hash in names
//
// A build runs code of the repository's author. So no credential and no result is within its reach:
// its pod has no token of a ServiceAccount; the token for the git server is mounted in the step
// that clones alone, and the login for the registry in the step that pushes; and the status of a
// run repeats only the results of both steps, each from a directory where no other step can
// write.
//
// # What holds
//
// At most BUILD_CONCURRENCY Deployments have a run that is not over. Counting them and creating the next run happen under one
// lock, and the list for the count waits until it has the runs that this process has made. A run that Tekton does not end ceases
// to count some minutes after its timeout.
//
// A run is named after the generation, the value of AnnotationRunAgain and the source. The same request has the same name, so
// at most one run answers it. A name is used again only after all that Tekton made for an earlier run of that name is deleted.
//
// A build is added to the usage of its Project before its end is recorded in the status. So it is counted, and the usage knows the
// builds that it has, so it is counted once.
//
// # After a kill
//
// Nothing is kept in memory. A run whose creation was not recorded is found by its label. The place in the queue is a time in the
// status. An image that was looked up is in the status with the request that it answers.
//
// A PipelineRun is created once and never changed, but to cancel it: a client that cancels or
// deletes one decides its result, and the operator does not restore it. Tekton is optional: its
// kinds may come and go.
package deployment
