// Package network makes, watches and deletes container networks: each is a namespace.
//
// kit/reconcile calls the steps of a reconciliation in this order:
//
//	observe.go     all reads, into one Observed
//	checks.go      pure: the problem that keeps the network from running
//	plan.go        pure: the objects that the network consists of
//	controller.go  applies them: the only writes of objects of a network
//	status.go      pure: state and conditions
//
// and finalize.go for a network that is being deleted.
//
// A namespace that was not made for the network is used as it is, if the mode says so. The operator adds only a
// RoleBinding to it, with its rights for tunnels.
package network
