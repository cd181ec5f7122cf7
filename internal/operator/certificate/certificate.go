// Package certificate issues and renews the certificate of the webhook server: a small certificate
// authority, and a certificate that it signs. The current data and time are arguments,
// and the desired data is the result.
//
// During a renewal the API server always trusts the certificate: first the new authority is
// published together with the old one, and after that the new certificate is issued.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/bergctf/berg-operator/internal/kit/authority"
)

// The lifetimes. Renewal is due after two thirds of them.
const (
	authorityLife   = 2 * 365 * 24 * time.Hour
	certificateLife = 90 * 24 * time.Hour
)

// The keys of the Secret.
const (
	KeyAuthorities  = "ca.crt"
	KeyAuthorityKey = "ca.key"
	KeyCertificate  = "tls.crt"
	KeyKey          = "tls.key"
)

// Maker issues certificates.
type Maker struct {
	// Names are the DNS names of the server.
	Names []string
	Now   time.Time
}

// Next returns the data of a Secret in which everything missing or about to expire is issued
// again, and whether anything was. published are the authorities that the API server trusts now.
func (m Maker) Next(data map[string][]byte, published []byte) (next map[string][]byte, changed bool, err error) {
	newest, err := read(data)
	if err != nil || m.Now.After(newest.NotAfter()) {
		// Unreadable and expired data is replaced.
		next, err = m.first()
		return next, true, err
	}
	next = maps.Clone(data)
	// Only the authority is issued here. The certificate follows in a later call, when the API server trusts the new authority.
	if m.due(newest.Certificate) {
		issued, err := m.authority()
		if err != nil {
			return nil, false, err
		}
		next[KeyAuthorities], next[KeyAuthorityKey] = slices.Concat(issued.Certificate, newest.Certificate), issued.Key
		return next, true, nil
	}
	good := !m.due(data[KeyCertificate]) && newest.Signed(data[KeyCertificate], m.Names...)
	// A certificate of an authority that the API server does not trust yet would fail every request. The event of the published
	// authorities leads to the next call.
	if good || !trusts(published, newest) {
		return data, false, nil
	}
	if next[KeyAuthorities], err = m.unexpired(newest.Certificate); err != nil {
		return nil, false, err
	}
	return next, true, m.issue(newest, next)
}

// Renewal returns the time from which Next would change its result.
func Renewal(data map[string][]byte) (time.Time, error) {
	newest, err := read(data)
	if err != nil {
		return time.Time{}, err
	}
	due, _, err := authority.RenewAt(newest.Certificate)
	if leaf, _, leafErr := authority.RenewAt(data[KeyCertificate]); err == nil && leafErr == nil && leaf.Before(due) {
		due = leaf
	}
	return due, err
}

// Pair returns the certificate of a Secret's data.
func Pair(data map[string][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[KeyCertificate], data[KeyKey])
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the webhook server: %w", err)
	}
	return &pair, nil
}

// first returns the data of a Secret that has none.
func (m Maker) first() (map[string][]byte, error) {
	issued, err := m.authority()
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{KeyAuthorities: issued.Certificate, KeyAuthorityKey: issued.Key}
	return data, m.issue(issued, data)
}

func (m Maker) authority() (*authority.Authority, error) {
	return authority.New(pkix.Name{CommonName: "berg-operator webhooks"}, m.Now, authorityLife)
}

// issue puts a new certificate of an authority into the data of a Secret.
func (m Maker) issue(from *authority.Authority, data map[string][]byte) error {
	leaf := authority.Leaf{Subject: pkix.Name{CommonName: m.Names[0]}, Names: m.Names, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	pair, err := from.Issue(leaf, m.Now, certificateLife)
	data[KeyCertificate], data[KeyKey] = pair.Certificate, pair.Key
	return err
}

func (m Maker) due(certificatePEM []byte) bool {
	renew, _, err := authority.RenewAt(certificatePEM)
	return err != nil || !m.Now.Before(renew)
}

// unexpired returns the authorities that have not ended.
func (m Maker) unexpired(bundle []byte) ([]byte, error) {
	all, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		return nil, errUnusable
	}
	return cert.EncodeCertificates(slices.DeleteFunc(all, func(a *x509.Certificate) bool { return m.Now.After(a.NotAfter) })...)
}

// trusts reports whether an API server that trusts some authorities trusts this one.
func trusts(published []byte, newest *authority.Authority) bool {
	own, err := cert.ParseCertsPEM(newest.Certificate)
	if err != nil {
		return false
	}
	all, err := cert.ParseCertsPEM(published)
	return err == nil && slices.ContainsFunc(all, own[0].Equal)
}

// errUnusable does not quote the data, since it holds keys.
var errUnusable = errors.New("the certificate of the webhook server cannot be read")

// read returns the newest authority in the data of a Secret, whose certificate and key must be usable.
func read(data map[string][]byte) (*authority.Authority, error) {
	newest, err := authority.Parse(authority.Pair{Certificate: data[KeyAuthorities], Key: data[KeyAuthorityKey]})
	if _, pairErr := tls.X509KeyPair(data[KeyCertificate], data[KeyKey]); err != nil || pairErr != nil {
		return nil, errUnusable
	}
	return newest, nil
}
