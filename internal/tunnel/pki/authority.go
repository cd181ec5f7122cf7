package pki

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bergctf/berg-operator/internal/kit/authority"
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

// Pair is a certificate and its key, both in PEM.
type Pair = authority.Pair

// Authority signs the certificates of one pair of proxies.
type Authority struct{ *authority.Authority }

// NewAuthority makes an authority that is valid from now on. name is the common name of its certificate.
func NewAuthority(name string, now time.Time, validity time.Duration) (*Authority, error) {
	a, err := authority.New(subject(name), now, validity)
	return &Authority{a}, err
}

// ParseAuthority reads an authority that NewAuthority has made.
func ParseAuthority(pair Pair) (*Authority, error) {
	a, err := authority.Parse(pair)
	return &Authority{a}, err
}

func subject(name string) pkix.Name {
	return pkix.Name{CommonName: name, Organization: []string{"berg-tunnel"}}
}

// Issue signs a certificate for a role, valid from now. It ends no later than the authority.
func (a *Authority) Issue(role Role, now time.Time, validity time.Duration) (Pair, error) {
	usages, err := role.usages()
	if err != nil {
		return Pair{}, err
	}
	return a.Authority.Issue(authority.Leaf{Subject: subject(string(role)), Names: []string{role.Name()}, Usages: usages}, now, validity)
}

// Signed reports whether the authority has signed a certificate in PEM for the role.
func (a *Authority) Signed(certificatePEM []byte, role Role) bool {
	return a.Authority.Signed(certificatePEM, role.Name())
}

// RenewAt returns when a certificate in PEM must be renewed, after two thirds of its lifetime, and when it expires.
func RenewAt(certificatePEM []byte) (renew, end time.Time, err error) {
	return authority.RenewAt(certificatePEM)
}

// WriteFiles writes the certificate of an authority, roots, and a pair to a folder that only this user can read, each file atomically. Files that have
// this content already stay as they are. Nil roots are left out. A reader may see the new key with the old certificate for a
// moment: Files keeps the last identity then.
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
