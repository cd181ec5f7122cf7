// Package command has the commands of berg-tunnel.
//
//	command.go       the program, its exit codes, and the commands of both proxies
//	expose.go        lets pods reach servers of this machine
//	control.go       calls to a server proxy
//	certificates.go  makes and renews the certificates of a pair
//	rules.go         the servers that tunnels may lead to
package command
