package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	// The operator's image has no authorities of its own.
	_ "golang.org/x/crypto/x509roots/fallback"
)

// How long a connection may take to be made.
const dialTimeout = 5 * time.Second

// errForbiddenAddress keeps those who choose an image from having the operator talk to what
// only the node should: the metadata service of a cloud.
var errForbiddenAddress = errors.New("the registry has a link-local address, to which the operator does not go")

// Transport returns one that trusts the authorities of a PEM text beside the public ones. It
// connects to no link-local address.
func Transport(authorities []byte) (*http.Transport, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if len(authorities) > 0 && !pool.AppendCertsFromPEM(authorities) {
		return nil, errors.New("must hold certificates of authorities as PEM")
	}
	dialer := &net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		if to.Addr().Unmap().IsLinkLocalUnicast() {
			return errForbiddenAddress
		}
		return nil
	}}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: time.Minute,
		ForceAttemptHTTP2:     true,
		DisableKeepAlives:     true,
	}, nil
}
