// Package pki issues the certificates of a pair of proxies: one authority for each pair, and three leaves below it, for
// the client proxy, the server proxy and the controller. Each leaf has a DNS name for its role, which both ends of every
// connection check, so that the leaf of one end cannot be used for another.
//
// Keys are ECDSA P-256, because data connections have a handshake each. Nothing in this package logs, and no error quotes
// the content of a file.
package pki
