// Package expose lets pods reach servers of this machine, without an operator: it creates the client proxy in a pod, forwards its
// ports to this machine as kubectl does, and runs the server proxy in this process.
//
//	expose.go     the whole run: which objects are created, in which order, and which are deleted
//	objects.go    the pod, the Secret and the Service
//	cluster.go    the calls to the API server
//	forward.go    the connection to the pod, which is made again whenever it breaks
//	servers.go    which servers do not answer
//
// # What holds
//
// The pod owns the Secret and the Service: who deletes the pod deletes all. An object of the same name that berg-tunnel has not made is
// never touched.
//
// The keys of the authority, the server proxy and the controller stay in the memory of this process. Only the client proxy's pair is in
// the cluster, and the pod ends some time after this process.
//
// A process that is killed leaves the pod, which ends after peerGrace. The next run of that name replaces it.
package expose
