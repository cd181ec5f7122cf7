// Package manifests builds the objects that a pair of proxies consists of. It is pure: no client, no clock, no
// randomness. Equal Inputs give equal objects.
//
//	plan.go           Inputs, the Plan of a pair, and the names, labels and owner of its objects
//	pod.go            the pods of both proxies, and their command lines
//	service.go        the Services
//	networkpolicy.go  the NetworkPolicy of the client proxy
package manifests
