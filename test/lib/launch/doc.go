// Package launch runs the operator as a process of its own, as a Deployment would: built once,
// configured by its environment, with its own connection to the API server, its log in a file.
//
// An Operator is what Kubernetes calls a pod: it has its addresses, and may be started again
// and again. A Process is one run of it. A Gate stands between an operator and the API server,
// to look at what is asked for, to delay it, or to cut the line.
//
// Nothing here belongs to a test framework: errors are returned.
package launch
