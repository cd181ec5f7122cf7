// Package application checks KibaShip Applications against their Projects, and deletes their
// Deployments with them. It makes no workload.
//
// A reconciliation has these steps:
//
//	observe (observe.go)     all reads, into one Observed
//	check   (checks.go, rules)  pure: which problems there are
//	claim   (controller.go)  the finalizer and the labels of the Project, in one write
//	status  (status.go)      pure: phase and conditions
//	patch   (controller.go)  the only write of the status
//
// An Application that is being deleted goes through finalize.go instead.
package application
