// Package reach connects to the ports of an instance, once before it is Running. It is quicker than the node of a pod, which
// tries once a second, and the data plane of a cluster serves a node port a moment after the pod behind it is ready. It waits
// for a few seconds at most, and decides nothing that must survive a restart.
//
// It connects only to addresses that no player or author can choose: the address of the node on which a pod runs, with a port
// that the API server has allocated, and the address of the pod. The Gateway is not tried: it accepts every connection, also
// to a route that it does not serve yet.
package reach
