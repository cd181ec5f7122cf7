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
package tunnelproxy
