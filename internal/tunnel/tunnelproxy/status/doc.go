// Package status computes the status of a pair of proxies from observations. It is pure: no client, and time comes in
// as a value.
//
//	observed.go  the observations and results of one reconciliation
//	pods.go      the state of a proxy, from the status of its pod
//	checks.go    whether a pair has ended, and the problems that keep it from starting
//	problems.go  the problem for a failed write
//	tunnels.go   the states of tunnels
//	status.go    state, places of the proxies, and conditions
package status
