// Package status computes the status of a pair of proxies from what was observed of it. It is pure: no client, and time
// comes in as a value.
//
//	observed.go  what one reconciliation observes of a pair, and what it does
//	pods.go      what a pod says about its proxy
//	checks.go    whether a pair has ended, and what keeps it from starting
//	problems.go  what a failed write means
//	tunnels.go   the states of tunnels
//	status.go    state, places of the proxies, and conditions
package status
