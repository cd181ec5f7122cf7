package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/bergctf/berg-operator/internal/kit/netpolicy"

	// The operator's image has no authorities of its own.
	_ "golang.org/x/crypto/x509roots/fallback"
)

// How long a connection may take to be made.
const dialTimeout = 5 * time.Second

// errForbiddenAddress keeps users who choose an image from having the operator connect to addresses
// that only the node or the operator itself should reach: the metadata service of a cloud, and
// every listener in its own pod.
var errForbiddenAddress = errors.New("the registry has an address to which the operator does not go: a loopback, link-local or multicast one, or a private one of a registry that IMAGE_REGISTRIES does not list")

// Reach says to which addresses a connection may be made.
type Reach func(netip.Addr) bool

// Internet accepts the addresses to which the operator connects for an image of a registry that a tenant chose: publicly
// routable addresses. With others a tenant could find out which servers listen in the cluster and next to it.
func Internet(to netip.Addr) bool {
	private := slices.ContainsFunc(netpolicy.NotTheWorld, func(p netip.Prefix) bool { return p.Contains(meant(to)) })
	return Public(to) && !private || exempt(to)
}

// Public are the addresses that the operator connects to for an image of a registry that an administrator listed: no
// loopback, unspecified, link-local, multicast or broadcast one. Private ranges are among them:
// registries of a company have such addresses.
func Public(to netip.Addr) bool {
	return meant(to).IsGlobalUnicast() || exempt(to)
}

// Nearby accepts the addresses for a push: an administrator chose the registry.
func Nearby(to netip.Addr) bool { return !meant(to).IsLinkLocalUnicast() }

// translated are addresses that hold one of IPv4, for networks that have no other:
// https://www.rfc-editor.org/rfc/rfc6052
var translated = netip.MustParsePrefix("64:ff9b::/96")

// meant is the address that is meant.
func meant(a netip.Addr) netip.Addr {
	if a = a.WithZone(""); translated.Contains(a) {
		bytes := a.As16()
		a, _ = netip.AddrFromSlice(bytes[12:]) // four bytes are one
	}
	return a.Unmap()
}

var exemptions struct {
	sync.RWMutex
	all []netip.Prefix
}

// Exempt lets Public have the addresses of a prefix until undo is called: for tests, whose
// registries are on their own machine.
func Exempt(prefix netip.Prefix) (undo func()) {
	exemptions.Lock()
	defer exemptions.Unlock()
	exemptions.all = append(exemptions.all, prefix)
	return func() {
		exemptions.Lock()
		defer exemptions.Unlock()
		if index := slices.Index(exemptions.all, prefix); index >= 0 {
			exemptions.all = slices.Delete(exemptions.all, index, index+1)
		}
	}
}

func exempt(to netip.Addr) bool {
	exemptions.RLock()
	defer exemptions.RUnlock()
	return slices.ContainsFunc(exemptions.all, func(p netip.Prefix) bool { return p.Contains(to.Unmap()) })
}

// Transport returns a transport that trusts the authorities of a PEM text in addition to the public
// ones, and connects only to allowed addresses of registries, of their redirects, and of
// their token servers. Where a proxy is set, the proxy resolves names; only literal addresses are
// checked here.
func Transport(authorities []byte, may Reach) (*http.Transport, error) {
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
		if !may(to.Addr()) {
			return errForbiddenAddress
		}
		return nil
	}}
	return &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) {
			if to, err := netip.ParseAddr(r.URL.Hostname()); err == nil && !may(to) {
				return nil, errForbiddenAddress
			}
			return http.ProxyFromEnvironment(r)
		},
		DialContext:           dialer.DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   dialTimeout,
		ResponseHeaderTimeout: time.Minute,
		ForceAttemptHTTP2:     true,
		DisableKeepAlives:     true,
	}, nil
}
