// Package pki issues the certificates of a cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// validity outlasts every use of a throw-away cluster, and is short enough that a forgotten key is worth nothing.
const validity = 14 * 24 * time.Hour

// Identity is one certificate to issue: for a server when it has hosts, for a client otherwise, or for both.
type Identity struct {
	Name      string   // of its files
	Authority string   // which signs it, by name
	User      string   // as which it acts
	Group     string   // of the user; may be empty
	Hosts     []string // names and addresses that the server answers to
}

// Authority signs certificates.
type Authority struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// NewAuthority makes an authority with a certificate that it signs itself.
func NewAuthority(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate()
	if err != nil {
		return nil, err
	}
	template.Subject = pkix.Name{CommonName: name}
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(raw)
	return &Authority{Certificate: certificate, Key: key}, err
}

// Issue makes a key and a certificate for it. Authority of the identity is not looked at.
func (a *Authority) Issue(id Identity) (raw []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	template, err := newTemplate()
	if err != nil {
		return nil, nil, err
	}
	template.Subject = pkix.Name{CommonName: id.User}
	if id.Group != "" {
		template.Subject.Organization = []string{id.Group}
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	// etcd presents its server certificate as a client to its own gateway, so a server's is good for both.
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(id.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range id.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	raw, err = x509.CreateCertificate(rand.Reader, template, a.Certificate, key.Public(), a.Key)
	return raw, key, err
}

func newTemplate() (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          serial,
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(validity),
		BasicConstraintsValid: true,
	}, nil
}

// Encode writes a certificate or key in PEM.
func Encode(kind string, raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
}
