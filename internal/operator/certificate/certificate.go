// Package certificate issues and renews the certificate of the webhook server: a small certificate
// authority, and a certificate that it signs. The current data and time are arguments,
// and the desired data is the result.
//
// During a renewal the API server always trusts the certificate: first the new authority is
// published together with the old one, and after that the new certificate is issued.
package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The lifetimes. Renewal is due after two thirds of them.
const (
	authorityLife   = 2 * 365 * 24 * time.Hour
	certificateLife = 90 * 24 * time.Hour
	// skew is how far the clock of an API server may be behind.
	skew = time.Hour
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
	state, err := read(data)
	if err != nil || state.authorityEnded(m.Now) {
		// Unreadable and expired data is replaced.
		next, err = m.first()
		return next, true, err
	}
	newest := state.authorities[0]
	if m.due(newest) {
		key, authority, err := m.authority()
		if err != nil {
			return nil, false, err
		}
		state.key, state.authorities = key, slices.Insert(state.authorities, 0, authority)
		next, err = state.data()
		return next, true, err
	}
	if m.good(state, newest) || !trusts(published, newest) {
		return data, false, nil
	}
	if state.leaf, state.leafKey, err = m.leaf(newest, state.key); err != nil {
		return nil, false, err
	}
	state.authorities = slices.DeleteFunc(state.authorities, func(a *x509.Certificate) bool { return m.Now.After(a.NotAfter) })
	next, err = state.data()
	return next, true, err
}

// Renewal returns the time from which Next would change its result.
func Renewal(data map[string][]byte) (time.Time, error) {
	state, err := read(data)
	if err != nil {
		return time.Time{}, err
	}
	due := renewal(state.authorities[0])
	if leaf := renewal(state.leaf); leaf.Before(due) {
		due = leaf
	}
	return due, nil
}

// Pair returns the certificate of a Secret's data.
func Pair(data map[string][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[KeyCertificate], data[KeyKey])
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the webhook server: %w", err)
	}
	return &pair, nil
}

// state is the content of a Secret.
type state struct {
	// authorities, the newest first; key is the key of the newest.
	authorities []*x509.Certificate
	key         *ecdsa.PrivateKey
	leaf        *x509.Certificate
	leafKey     *ecdsa.PrivateKey
}

func (s state) authorityEnded(now time.Time) bool { return now.After(s.authorities[0].NotAfter) }

func (m Maker) first() (map[string][]byte, error) {
	key, authority, err := m.authority()
	if err != nil {
		return nil, err
	}
	s := state{authorities: []*x509.Certificate{authority}, key: key}
	if s.leaf, s.leafKey, err = m.leaf(authority, key); err != nil {
		return nil, err
	}
	return s.data()
}

func (m Maker) due(c *x509.Certificate) bool { return !m.Now.Before(renewal(c)) }

func renewal(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 3)
}

// good reports whether the certificate is of the newest authority, for all names, and not due for renewal.
func (m Maker) good(s state, newest *x509.Certificate) bool {
	if m.due(s.leaf) || s.leaf.CheckSignatureFrom(newest) != nil {
		return false
	}
	return !slices.ContainsFunc(m.Names, func(name string) bool { return s.leaf.VerifyHostname(name) != nil })
}

func trusts(bundle []byte, authority *x509.Certificate) bool {
	all, err := authorities(bundle)
	return err == nil && slices.ContainsFunc(all, authority.Equal)
}

func (m Maker) authority() (*ecdsa.PrivateKey, *x509.Certificate, error) {
	template := m.template("berg-operator webhooks", authorityLife)
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	authority, err := m.sign(template, template, key, key)
	return key, authority, err
}

func (m Maker) leaf(authority *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	template := m.template(m.Names[0], certificateLife)
	template.DNSNames = m.Names
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if template.NotAfter.After(authority.NotAfter) {
		template.NotAfter = authority.NotAfter
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	leaf, err := m.sign(template, authority, key, signer)
	return leaf, key, err
}

func (m Maker) template(name string, life time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: m.Now.Add(-skew), NotAfter: m.Now.Add(life),
	}
}

func (m Maker) sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for the webhook server: %w", err)
	}
	return x509.ParseCertificate(der)
}

func (s state) data() (map[string][]byte, error) {
	var bundle bytes.Buffer
	for _, a := range s.authorities {
		bundle.Write(encoded("CERTIFICATE", a.Raw))
	}
	key, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return nil, err
	}
	leafKey, err := x509.MarshalPKCS8PrivateKey(s.leafKey)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		KeyAuthorities: bundle.Bytes(), KeyAuthorityKey: encoded("PRIVATE KEY", key),
		KeyCertificate: encoded("CERTIFICATE", s.leaf.Raw), KeyKey: encoded("PRIVATE KEY", leafKey),
	}, nil
}

func encoded(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// errUnusable does not quote the data, since it holds keys.
var errUnusable = errors.New("the certificate of the webhook server cannot be read")

func read(data map[string][]byte) (s state, err error) {
	if s.authorities, err = authorities(data[KeyAuthorities]); err != nil {
		return s, errUnusable
	}
	if _, s.key, err = readPair(data[KeyAuthorities], data[KeyAuthorityKey]); err != nil {
		return s, err
	}
	s.leaf, s.leafKey, err = readPair(data[KeyCertificate], data[KeyKey])
	return s, err
}

// readPair returns the first of some certificates, and its key.
func readPair(certificates, key []byte) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	pair, err := tls.X509KeyPair(certificates, key) // it compares the public keys
	if err != nil {
		return nil, nil, errUnusable
	}
	own, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, errUnusable
	}
	return pair.Leaf, own, nil
}

func authorities(bundle []byte) (all []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return all, nil
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errUnusable
		}
		all = append(all, c)
	}
}
