// Package authority has small certificate authorities: it issues and reads certificates with keys of ECDSA P-256, in PEM. No error
// quotes the content of a file.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// skew is how far the clock of a peer may be behind.
const skew = time.Hour

// Pair is a certificate and its key, both in PEM.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// Authority signs certificates.
type Authority struct {
	Pair

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New makes an authority that is valid from now on.
func New(subject pkix.Name, now time.Time, validity time.Duration) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	certificate := newTemplate(subject, now, now.Add(validity))
	certificate.IsCA, certificate.BasicConstraintsValid, certificate.MaxPathLenZero = true, true, true
	certificate.KeyUsage = x509.KeyUsageCertSign
	pair, err := sign(certificate, certificate, key, key)
	if err != nil {
		return nil, err
	}
	return Parse(pair)
}

// Parse reads an authority that New has made. Earlier authorities may follow its certificate. It returns an error if the key does not
// match the certificate, or if the certificate is not an authority. Its errors never quote the key, because they end up in logs
// and conditions.
func Parse(pair Pair) (*Authority, error) {
	certificate, err := parseCertificate(pair.Certificate)
	if err != nil {
		return nil, fmt.Errorf("the authority's certificate: %w", err)
	}
	block, _ := pem.Decode(pair.Key)
	if block == nil {
		return nil, errors.New("the authority's key is not in PEM")
	}
	// The error of x509 may quote the key.
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, isECDSA := parsed.(*ecdsa.PrivateKey)
	if err != nil || !isECDSA {
		return nil, errors.New("the authority's key is not an ECDSA key in PKCS #8")
	}
	if !certificate.IsCA || !key.PublicKey.Equal(certificate.PublicKey) {
		return nil, errors.New("the authority's certificate is not an authority, or does not match its key")
	}
	return &Authority{Pair: pair, certificate: certificate, key: key}, nil
}

// Leaf is the content of a certificate to issue.
type Leaf struct {
	Subject pkix.Name
	// Names are its DNS names.
	Names  []string
	Usages []x509.ExtKeyUsage
}

// Issue signs a certificate that is valid from now. It ends no later than the authority.
func (a *Authority) Issue(leaf Leaf, now time.Time, validity time.Duration) (Pair, error) {
	end := now.Add(validity)
	if end.After(a.certificate.NotAfter) {
		end = a.certificate.NotAfter
	}
	if !now.Before(end) {
		return Pair{}, errors.New("the authority has expired: make another one")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key for %s: %w", leaf.Subject.CommonName, err)
	}
	template := newTemplate(leaf.Subject, now, end)
	template.KeyUsage, template.ExtKeyUsage, template.DNSNames = x509.KeyUsageDigitalSignature, leaf.Usages, leaf.Names
	return sign(template, a.certificate, key, a.key)
}

// NotAfter returns when the authority expires.
func (a *Authority) NotAfter() time.Time { return a.certificate.NotAfter }

// Signed reports whether the authority has signed a certificate in PEM for all these names.
func (a *Authority) Signed(certificatePEM []byte, names ...string) bool {
	certificate, err := parseCertificate(certificatePEM)
	return err == nil && certificate.CheckSignatureFrom(a.certificate) == nil &&
		!slices.ContainsFunc(names, func(name string) bool { return certificate.VerifyHostname(name) != nil })
}

// RenewAt returns when the first certificate in PEM must be renewed, after two thirds of its lifetime, and when it expires. A
// third of the lifetime is left for renewals that fail.
func RenewAt(certificatePEM []byte) (renew, end time.Time, err error) {
	certificate, err := parseCertificate(certificatePEM)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	// The lifetime starts when it is made. NotBefore is earlier, for clocks that are late; if that counted, a certificate of
	// some minutes would be due as soon as it exists.
	begin := certificate.NotBefore.Add(skew)
	return begin.Add(certificate.NotAfter.Sub(begin) * 2 / 3), certificate.NotAfter, nil
}

func newTemplate(subject pkix.Name, now, end time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: subject, NotBefore: now.Add(-skew), NotAfter: end}
}

func sign(certificate, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, certificate, parent, &key.PublicKey, parentKey)
	if err != nil {
		return Pair{}, fmt.Errorf("sign a certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode a key: %w", err)
	}
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

func parseCertificate(encoded []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(encoded)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("it is not a certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}
