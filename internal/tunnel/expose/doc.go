// Package expose lets pods reach servers of this machine, without an operator: it creates the client proxy in a pod, forwards its
// ports to this machine as kubectl does, and runs the server proxy in this process.
//
//	expose.go     the whole run: which objects are created, in which order, and which are deleted
//	objects.go    the pod, the Secret and the Service
//	cluster.go    the calls to the API server
//	forward.go    the connection to the pod, which is made again whenever it breaks
//	servers.go    which servers do not answer
package expose
