package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Role is which end a certificate is for.
type Role string

// The three ends.
const (
	// ClientProxy is the proxy in the container network. It opens no connections.
	ClientProxy Role = "client-proxy"
	// ServerProxy is the proxy on the host. It dials the client proxy, and serves the controller.
	ServerProxy Role = "server-proxy"
	// Controller calls the server proxy.
	Controller Role = "controller"
)

// Name returns the DNS name in certificates of the role. It is never resolved.
func (r Role) Name() string { return string(r) + ".berg-tunnel.internal" }

// usages returns the usages of the role's certificates: to serve, to dial, or both.
func (r Role) usages() ([]x509.ExtKeyUsage, error) {
	switch r {
	case ClientProxy:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, nil
	case ServerProxy:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, nil
	case Controller:
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, nil
	default:
		return nil, fmt.Errorf("unknown role %q: want %s, %s or %s", string(r), ClientProxy, ServerProxy, Controller)
	}
}

// Names of the files with the certificates of a proxy. They are the keys of a Secret of type kubernetes.io/tls.
const (
	AuthorityFile   = "ca.crt"
	CertificateFile = "tls.crt"
	KeyFile         = "tls.key"
)

// skew is how much the clocks of a pair may differ.
const skew = 5 * time.Minute

// Pair is a certificate and its key, both in PEM.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// Authority signs the certificates of one pair of proxies.
type Authority struct {
	Pair
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes an authority that is valid from now on. name is the common name of its certificate.
func NewAuthority(name string, now time.Time, validity time.Duration) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	certificate, err := newTemplate(name, now, validity)
	if err != nil {
		return nil, err
	}
	certificate.IsCA, certificate.BasicConstraintsValid = true, true
	certificate.MaxPathLenZero = true
	certificate.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	pair, err := sign(certificate, certificate, key, key)
	if err != nil {
		return nil, err
	}
	return ParseAuthority(pair)
}

// ParseAuthority reads an authority that NewAuthority has made. It returns an error if the key does not match the
// certificate, or if the certificate is not an authority.
func ParseAuthority(pair Pair) (*Authority, error) {
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

// Issue signs a certificate for a role, valid from now. It ends no later than the authority.
func (a *Authority) Issue(role Role, now time.Time, validity time.Duration) (Pair, error) {
	usages, err := role.usages()
	if err != nil {
		return Pair{}, err
	}
	if !now.Before(a.certificate.NotAfter) {
		return Pair{}, errors.New("the authority has expired: make another one")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key for the %s: %w", role, err)
	}
	leaf, err := newTemplate(string(role), now, min(validity, a.certificate.NotAfter.Sub(now)))
	if err != nil {
		return Pair{}, err
	}
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, usages
	leaf.DNSNames = []string{role.Name()}
	return sign(leaf, a.certificate, key, a.key)
}

// NotAfter returns when the authority expires.
func (a *Authority) NotAfter() time.Time { return a.certificate.NotAfter }

// Signed reports whether the authority has signed a certificate in PEM for the role.
func (a *Authority) Signed(certificatePEM []byte, role Role) bool {
	certificate, err := parseCertificate(certificatePEM)
	return err == nil && certificate.CheckSignatureFrom(a.certificate) == nil && certificate.VerifyHostname(role.Name()) == nil
}

// RenewAt returns when a certificate in PEM must be renewed, after two thirds of its lifetime, and when it expires.
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

func newTemplate(name string, now time.Time, validity time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("choose a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name, Organization: []string{"berg-tunnel"}},
		NotBefore:    now.Add(-skew),
		NotAfter:     now.Add(validity),
	}, nil
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

// WriteFiles writes the certificate of an authority, roots, and a pair to a folder that only this user can read, each file atomically. Files that have
// this content already stay as they are. Nil roots are left out.
func WriteFiles(dir string, roots []byte, pair Pair) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// The certificate is written last: an authority without one is made again.
	for _, file := range []struct {
		name    string
		content []byte
	}{{AuthorityFile, roots}, {KeyFile, pair.Key}, {CertificateFile, pair.Certificate}} {
		path := filepath.Join(dir, file.name)
		if present, err := os.ReadFile(path); file.content == nil || err == nil && bytes.Equal(present, file.content) {
			continue
		}
		if err := os.WriteFile(path+".new", file.content, 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}
