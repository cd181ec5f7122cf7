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

	"github.com/bergctf/berg-operator/internal/kit/allowlist"
	"github.com/bergctf/berg-operator/internal/kit/netpolicy"

	// The operator's image has no authorities of its own.
	_ "golang.org/x/crypto/x509roots/fallback"
)

// How long a connection may take to be made.
const dialTimeout = 5 * time.Second

// errForbiddenAddress keeps users who choose an image from having the operator connect to addresses
// that only the node or the operator itself should reach: the metadata service of a cloud, and
// every listener in its own pod.
var errForbiddenAddress = errors.New("the registry has an address to which the operator does not go: a loopback, link-local or multicast one, one of a cloud's metadata, or a private one of a registry that IMAGE_REGISTRIES does not list")

// Reach says to which addresses a connection may be made.
type Reach func(netip.Addr) bool

// The rules know each notation of IPv6 that leads to an address of IPv4, and where clouds serve the credentials of a node.
var (
	nearby   = allowlist.Rules{Allowed: netpolicy.Everywhere}
	public   = allowlist.Rules{Allowed: netpolicy.Everywhere, Denied: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
	internet = allowlist.Rules{Allowed: netpolicy.Everywhere, Denied: netpolicy.NotTheWorld}
)

// anyPort stands for each port: the rules above deny none.
const anyPort = 443

// Internet accepts the addresses to which the operator connects for an image of a registry that a tenant chose: publicly
// routable addresses. With others a tenant could find out which servers listen in the cluster and next to it.
func Internet(to netip.Addr) bool { return internet.Check(to, anyPort) == nil || exempt(to) }

// Public are the addresses that the operator connects to for an image of a registry that an administrator listed: no
// loopback, unspecified, link-local, multicast or broadcast one, and none of a cloud's metadata. Private ranges are among them:
// registries of a company have such addresses.
func Public(to netip.Addr) bool { return public.Check(to, anyPort) == nil || exempt(to) }

// Nearby accepts the addresses for a push: an administrator chose the registry.
func Nearby(to netip.Addr) bool { return nearby.Check(to, anyPort) == nil }

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
// checked here. The check is made when the address of a connection is known, so a name that resolves to another address a moment
// later is checked as well.
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
