// Package tunnelproxy makes, watches and deletes pairs of proxies that connect clients in a container network to servers
// on a node.
//
// kit/reconcile calls the steps of a reconciliation in this order:
//
//	observe.go     all reads, into one status.Observed
//	apply.go       one step after the other, until one must wait: the only writes of objects of a pair
//	status/        pure: state, tunnels and conditions
//
// and finalize.go for a pair that is being deleted. Packages:
//
//	manifests/     pure: the objects of a pair
//	status/        pure: checks and status
//	credentials/   certificates, in Secrets
//	backend/       how server proxies run
//	tunnelsync/    the calls to server proxies, and their counters
//
// Long operations are jobs (internal/tunnel/jobs): image builds, the wait for the first line of a server proxy, and calls
// to it. Results are in memory only. After a restart of the operator they are found again from pods, Secrets, processes
// and the server proxy's list of tunnels.
//
// The status holds three facts that exist nowhere else: that a pair has run, from which on a missing proxy is a failure;
// that it has failed, which is final; and the settings it was started with, which later changes do not affect.
//
// The other files:
//
//	reconciler.go  the dependencies, and the state in memory
//	controller.go  the frame of a reconciliation, and the clean-up of a Failed pair
//	image.go       the image of both proxies: given, built, or the operator's own
//	hostports.go   ports of nodes for pods that may not exist yet
//	settings.go    the settings of a pair, as it was started
//	watches.go     which events lead to a reconciliation
//	events.go, metrics.go  events and metrics
//	trim.go        the fields of pods and nodes that are cached
//
// # The order of a start
//
//	the Secrets        before the pods that mount them
//	the network policy before the first pod: it opens the control and data ports to nodes only
//	the client proxy   first, because the server proxy dials it and must know its address
//	the server proxy   when the client proxy is ready
//	the tunnels        when the server proxy has written its first line, by calls to it
//
// Both proxies start and end together: a proxy of another start has other tunnels and another instance.
//
// # After a kill
//
// Pods are found by their labels and owner, local processes by the folder on their command line. A job that was running begins again; each
// one may be repeated. Ports of nodes that were reserved and not used are free again, and the pods show the others. The counters of
// traffic begin with the next report of each pair, which counts nothing.
package tunnelproxy
