// Package network makes, watches and ends container networks: each is a namespace.
//
// A reconciliation of a network goes one way:
//
//	observe (observe.go)  all reads, into one Observed
//	check   (checks.go)    pure: what stands in the way
//	plan    (plan.go)     pure: every object that the network consists of
//	apply   (controller.go, kit/apply)  the only writes of children
//	derive  (status.go)   pure: state and conditions
//	patch   (controller.go)  the only write of the status
//
// A namespace that was not made for the network is used as it is, if the mode says so: nothing
// in it is changed but a RoleBinding, by which the operator may work there, and nowhere else.
package network
