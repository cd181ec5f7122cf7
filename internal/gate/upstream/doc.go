// Package upstream knows the pods behind Services, and connects to them.
//
//	endpoints.go  the addresses of Services' ports, from EndpointSlices
//	transport.go  HTTP connections to pods, which are kept for the same pod only
package upstream
