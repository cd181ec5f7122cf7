// Package pki has the certificates of a pair of proxies: one authority for each pair, and
// three leaves below it, for the client proxy, the server proxy and the controller. Each leaf
// says in a DNS name which of the three it is, and both ends of every connection check it:
// whoever has one leaf cannot pass for another end.
//
// Keys are ECDSA P-256, since every stream has a handshake of its own. Nothing in this package
// logs, and no error holds what was read from a file.
package pki
