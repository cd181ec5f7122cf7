// Package tunnelsync has server proxies make the tunnels that a spec asks for, and counts their traffic.
//
//	sync.go     the calls to a server proxy, as jobs
//	tunnels.go  the order of the calls: list, delete, prepare
//	rules.go    which tunnels are refused before a proxy is called
//	deny.go     the servers that no tunnel may lead to
//	traffic.go  the metrics of all tunnels
//
// No list of tunnels is kept: each job lists the tunnels of the server proxy, and makes the difference to the spec. So a call that was
// lost, a proxy that was started again and an operator that was killed need no code of their own.
//
// A tunnel that has not changed is never called for: its streams go on.
package tunnelsync
