// Package control has the API that controls a pair of proxies, generated from control.proto, and a client for it.
package control
