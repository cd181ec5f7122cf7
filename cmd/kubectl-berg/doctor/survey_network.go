package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// networkTimeout limits the lookup of a name, and a connection.
const networkTimeout = 5 * time.Second

// gateway distinguishes a Gateway that does not exist, with GatewayRead, from one that could not be read.
func (s *surveyor) gateway(ctx context.Context) {
	g := &gatewayv1.Gateway{}
	key := client.ObjectKey{Namespace: s.setting("GATEWAY_NAMESPACE"), Name: s.setting("GATEWAY_NAME")}
	found := s.readable("gateway", "Gateways", s.Get(ctx, key, g))
	s.set(func() { s.GatewayRead = s.Unreadable["gateway"] == "" })
	if !found {
		return
	}
	s.set(func() { s.Gateway = g })
	class := &gatewayv1.GatewayClass{}
	if s.readable("class", "GatewayClasses", s.Get(ctx, client.ObjectKey{Name: string(g.Spec.GatewayClassName)}, class)) {
		s.set(func() { s.GatewayClass = class })
	}
}

// names asks the resolver of this machine. Players may use another one.
func (s *surveyor) names(ctx context.Context) {
	domain, known := s.Setting("CHALLENGE_DOMAIN")
	if !known || s.Deployment == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	found, failed := map[string][]string{}, map[string]string{}
	for _, name := range []string{ProbeName + "." + domain, domain} {
		answer, err := net.DefaultResolver.LookupHost(ctx, name)
		found[name] = answer
		var unknown *net.DNSError
		switch {
		case errors.As(err, &unknown) && unknown.IsNotFound:
			failed[name] = "the name does not exist"
		case err != nil:
			failed[name] = err.Error()
		}
	}
	s.set(func() { s.Names, s.NameErrors = found, failed })
}

// connections reads the certificates that players are shown. It connects to the Gateway itself: the name
// may resolve to something else.
func (s *surveyor) connections(ctx context.Context) {
	g := s.Gateway
	domain, known := s.Setting("CHALLENGE_DOMAIN")
	if g == nil || !known || len(g.Status.Addresses) == 0 {
		return
	}
	for _, l := range g.Spec.Listeners {
		if l.Protocol != gatewayv1.HTTPSProtocolType && l.Protocol != gatewayv1.TLSProtocolType {
			continue
		}
		if l.TLS != nil && l.TLS.Mode != nil && *l.TLS.Mode == gatewayv1.TLSModePassthrough {
			continue
		}
		address := net.JoinHostPort(g.Status.Addresses[0].Value, strconv.Itoa(int(l.Port)))
		switch string(l.Name) {
		case s.setting("CHALLENGE_HTTP_LISTENER_NAME"):
			seen := Handshake(ctx, address, ProbeName+"."+domain)
			s.set(func() { s.HTTPS = seen })
		case s.setting("CHALLENGE_TLS_LISTENER_NAME"):
			seen := Handshake(ctx, address, ProbeName+"."+domain)
			s.set(func() { s.TLSListener = seen })
		}
	}
}

// Handshake connects as the client of a player does. It also reads a certificate that is not trusted. It waits at most
// networkTimeout for both attempts together.
func Handshake(ctx context.Context, address, name string) *TLS {
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	out := &TLS{Address: address}
	dial := func(trusting bool) error {
		//nolint:gosec // it sends no data: the second attempt reads the certificate that the first rejected
		dialer := &tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: trusting, MinVersion: tls.VersionTLS12}}
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer func() { _ = connection.Close() }()
		if shown := connection.(*tls.Conn).ConnectionState().PeerCertificates; len(shown) > 0 {
			out.NotAfter, out.Issuer = shown[0].NotAfter, shown[0].Issuer.CommonName
		}
		return nil
	}
	err := dial(false)
	if err == nil {
		return out
	}
	out.Err = err.Error()
	var refused *tls.CertificateVerificationError
	if errors.As(err, &refused) {
		out.Untrusted = dial(true) == nil
		out.Err = refused.Err.Error()
	}
	return out
}
