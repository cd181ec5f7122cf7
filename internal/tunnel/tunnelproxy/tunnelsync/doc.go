// Package tunnelsync has server proxies make the tunnels that a spec asks for, and counts what goes through them.
//
//	sync.go     the calls to a server proxy, as jobs
//	tunnels.go  what is to be called: list, delete, prepare
//	rules.go    which tunnels are refused before a proxy is called
//	deny.go     the servers that no tunnel may lead to
//	traffic.go  the metrics of all tunnels
package tunnelsync
