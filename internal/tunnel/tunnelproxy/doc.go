// Package tunnelproxy makes, watches and ends pairs of proxies that lead clients in a container
// network to servers on a node.
//
// A reconciliation of a pair goes one way:
//
//	observe (observe.go)  all reads, into one Observed
//	check   (checks.go)    pure: has it ended, and what stands in the way
//	plan    (plan.go)     pure: pods, Services and policies that a pair consists of
//	advance (advance.go, kit/apply)  one step after the other, until one must wait: the only writes of children
//	derive  (status.go)   pure: state, tunnels and conditions
//	patch   (controller.go)  the only write of the status
//
// What takes long is done beside the workers (internal/tunnel/jobs): the image is built, the
// server proxy's first line is waited for, and it is called. Results are in memory alone: after
// a restart pods, Secrets and processes tell what there is, and the server proxy lists its
// tunnels. Nothing else is needed to go on.
//
// Three facts stand in the status and nowhere else: that a pair has run, from which on a proxy
// that is missing means its end; that it has ended, which is for ever; and by which settings it was
// made, which stay its own when an administrator changes them.
package tunnelproxy
