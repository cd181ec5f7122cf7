// Package routing translates Gateways and routes into tables that say which backend serves a request. It is pure: it reads no
// cluster and opens no connection.
//
//	hostname.go   host names and wildcards: match, intersection, precedence
//	gateway.go    the listeners of a Gateway, and the conditions of both
//	attach.go     the listeners that a route attaches to, and the conditions of its parents
//	httproute.go  the rules of an HTTPRoute
//	backend.go    references to Services, and their choice by weight
//	header.go     changes of headers
//	match.go      the request that a rule serves
//	table.go      the rules and backends of each host
//	listener.go   the listeners that are served
//	taken.go      the hosts of Gateways that go before others
//
// A translation never fails as a whole: each part that is not valid is a condition, and the others are served.
//
// The table is read for each request. A reader holds the lock only to find the rules of a host, whose slice is replaced and never
// changed.
package routing
