// Package reach connects to the ports of an instance, once before it is Running. It is quicker than the node of a pod, which
// tries once a second, and the data plane of a cluster serves a node port a moment after the pod behind it is ready. It waits
// for a few seconds at most, and decides nothing that must survive a restart.
//
// It connects only to addresses that no player or author can choose: the address of the node on which a pod runs, with a port
// that the API server has allocated, the address of the pod, and an address in the status of the Gateway. A Gateway accepts a
// connection also for a route that it does not serve yet, so the status of the route counts first. The gate of this project is asked
// instead: each of its replicas, at the addresses of an EndpointSlice in the operator's namespace.
//
//	reach.go  connections to pods that are not ready yet, to node ports of ready pods, and how long an attempt takes
//	gate.go   connections to the listeners of a Gateway
//	ask.go    questions to the replicas of the gate
//	trust.go  whether connections from here say anything: where the network is in the way, no instance waits
//
// # What holds
//
// No function of a Waiter blocks. A reconciliation asks for a result, a goroutine connects, and the instance is enqueued when
// the result is there. The locks of the results are never held during a connection.
//
// A result belongs to the UID of an instance. The next instance of the same name is connected to again.
//
// Nothing is sent and nothing is read, because some challenges count requests. A program that serves one connection and ends is not
// connected to: its author sets connectAtStart to false.
//
// After a restart everything is forgotten, and instances that are not Running yet are connected to again. An instance that was
// ready before is not.
package reach
