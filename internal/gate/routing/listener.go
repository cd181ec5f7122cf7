package routing

import (
	"crypto/tls"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Mode is the treatment of the connections of a listener.
type Mode int

// The modes of listeners.
const (
	HTTP        Mode = iota // plain HTTP
	HTTPS                   // HTTP within TLS that ends here
	Terminate               // bytes within TLS that ends here
	Passthrough             // TLS that ends at the backend
)

// Port is a port of Gateways at one of the addresses that the gate has.
type Port struct {
	Address int // number of the address, from 0
	Number  int32
}

// Listener is a listener of a Gateway that is served.
type Listener struct {
	Gateway      types.NamespacedName
	Name         string
	Port         Port
	Hostname     string
	Mode         Mode
	Kinds        []string // kinds of routes that may attach
	Certificates []*tls.Certificate
	namespaces   func(namespace string, labels labels.Set) bool
	// Valid: the listener is served. Routes attach to an invalid one, too, so that its status counts them.
	Valid bool
}
