// Package tunnelsync has server proxies make the tunnels that a spec asks for, and counts their traffic.
//
//	sync.go     the calls to a server proxy, as jobs
//	tunnels.go  the order of the calls: list, delete, prepare
//	rules.go    which tunnels are refused before a proxy is called
//	deny.go     the servers that no tunnel may lead to
//	traffic.go  the metrics of all tunnels
package tunnelsync
