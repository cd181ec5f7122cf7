// Package deployment builds Applications, and remembers what came of it.
//
// A reconciliation of a Deployment goes one way:
//
//	observe (observe.go, tekton.go)  all reads, into one Observed
//	check   (checks.go)     pure: what stands in the way of a run
//	plan    (plan.go)      pure: the Pipeline and the PipelineRun
//	apply   (build.go, kit/apply)    the only writes of children
//	status  (status.go)    pure: phase, conditions, image, history
//	patch   (controller.go)          the only write of the status
//
// Builders stand in files named after the object they build; task.go is about what runs in the
// pods of a run, and clone.sh what the first of its steps does.
//
// Whose code runs in a build is the author's of the repository. So nothing that a build could
// take or forge is within its reach: its pod has no token of a ServiceAccount; the token for
// the git server is mounted in the step that clones alone, and the login for the registry in
// the step that pushes; and what the status says of a run is what these two steps said, each
// in a place where the others cannot write.
//
// A PipelineRun is created once and never changed, but to cancel it: that a client cancels or
// deletes one is an answer, not a drift. Tekton is optional: its kinds may come and go.
package deployment
