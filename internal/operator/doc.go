// Package operator is the process around the families: the manager, the leader election and
// its fence, events, metrics, and one cache for each family. It imports no family.
//
// In the order in which a process uses them:
//
//	await.go                waits for the API server, with probes that answer
//	installed.go            which families the cluster has, and when another one is installed
//	operator.go             the settings, and the manager with all controllers
//	scheme.go               the kinds of some families
//	dependencies.go         the cache, the clients and the scheme of a family
//	lease.go                the leader election, and the fence that refuses writes without a lease
//	webhooks.go, webhookcertificate.go  the webhooks of all families, and their certificate
//	serve.go, metricslimit.go           the ports of metrics, probes and profiles, with limits
//	events.go               one event at a time
//	memory.go               returns memory after a burst
//	upgrade.go              what delays an upgrade by the Operator Lifecycle Manager
//	metrics.go, stoplog.go  corrections of metrics and log lines of libraries
//	leader.go               answers from outside whether a replica leads
//
// # What holds
//
// Only the replica with a valid lease writes. The fence is in the HTTP client below the clients of all families, so no reconciler
// has to ask. Without it are the lease itself, events, the condition for the Operator Lifecycle Manager, and the few clients that a
// family makes itself over the connection of the manager.
//
// All replicas fill all caches before they compete for the lease. A new leader decides from full caches, which may be as old as the
// connection of the watch.
//
// A process ends for one of three reasons: it is asked to stop, it sees that another replica leads, or its settings or the installed
// families have changed. In the first and the last case reconciliations complete, then the lease is released. In the second the
// process exits immediately, since each of its writes would be refused.
//
// # After a kill
//
// The lease stays until it runs out, 15 seconds later. The next leader reconciles every resource. There is nothing to replay: all
// state is in the cluster.
package operator
