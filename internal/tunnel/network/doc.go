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
//
// The other files:
//
//	reconciler.go  the dependencies, and the state in memory
//	inputs.go      the inputs of a plan, the owner of the objects, and the name of the namespace
//	observed.go    the observations of a reconciliation
//	containers.go  the running containers, from a watch for each network
//	watches.go     which events lead to a reconciliation
//	events.go      events and metrics
//
// # What holds
//
// The operator has rights to pods and Secrets only in namespaces of networks, by a RoleBinding that it writes itself. It writes none
// while an admission policy is missing that limits these rights.
//
// A namespace is used as the network's own only with the token or the UID in the status. A network whose namespace is gone stays
// Removed: another namespace of that name has other containers.
//
// The network policy goes with the namespace, after the last pod. Neither it nor the binding has an owner reference, which the garbage
// collector would follow before the proxies have ended.
//
// # After a kill
//
// The digest of a token without a namespace is replaced: see apply.PrepareNamespace. All other steps are repeated, and find the objects
// in place. The watches of containers begin again, and the status keeps its containers until the first list is complete.
package network
