// Package control has the calls by which a pair of proxies is controlled, generated from
// control.proto, and a client for them.
package control
