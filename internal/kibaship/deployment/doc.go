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
// A build runs code of the repository's author. So no credential and no result is within its reach:
// its pod has no token of a ServiceAccount; the token for the git server is mounted in the step
// that clones alone, and the login for the registry in the step that pushes; and the status of a
// run repeats only the results of both steps, each from a directory where no other step can
// write.
//
// A PipelineRun is created once and never changed, but to cancel it: a client that cancels or
// deletes one decides its result, and the operator does not restore it. Tekton is optional: its
// kinds may come and go.
package deployment
