// Package reach connects to the ports of an instance, once before it is Running. It is quicker than the node of a pod, which
// tries once a second, and the data plane of a cluster serves a node port a moment after the pod behind it is ready. It waits
// for a few seconds at most, and decides nothing that must survive a restart.
//
// It connects only to addresses that no player or author can choose: the address of the node on which a pod runs, with a port
// that the API server has allocated, the address of the pod, and an address in the status of the Gateway. A Gateway accepts a
// connection also for a route that it does not serve yet, so the status of the route counts first. The gate of this project is asked
// instead: each of its replicas, at the addresses of an EndpointSlice in the operator's namespace.
package reach
