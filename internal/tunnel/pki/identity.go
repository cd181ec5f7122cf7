package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Identity is the certificate of one end, and the authority that it trusts. It is safe for concurrent use. It may change
// while it is used: that affects new connections only.
type Identity struct {
	// dir is where the files are; empty if they cannot change.
	dir string

	mu      sync.Mutex
	read    state
	current *material
}

// material is the content of the files as of one read.
type material struct {
	certificate tls.Certificate
	roots       *x509.CertPool
	configs     map[configKey]*tls.Config
}

type configKey struct {
	peer     Role
	protocol string
	dial     bool
}

// state is the state of the files when they were read: a difference means that they must be read again.
type state [3]os.FileInfo

// NewIdentity returns an identity that never changes. authorities has one or more certificates of authorities in PEM.
func NewIdentity(authorities []byte, pair Pair) (*Identity, error) {
	read, err := parse(authorities, pair)
	if err != nil {
		return nil, err
	}
	return &Identity{current: read}, nil
}

// Files returns the identity in the files of a folder: AuthorityFile, CertificateFile and KeyFile. Each new connection
// checks whether they have changed, and reads them again. If they are not usable then, for example because only one of
// two has been written yet, the last identity stays.
func Files(dir string) (*Identity, error) {
	i := &Identity{dir: dir}
	if err := i.refresh(); err != nil {
		return nil, err
	}
	return i, nil
}

// NotAfter returns when the certificate expires.
func (i *Identity) NotAfter() time.Time { return i.material().certificate.Leaf.NotAfter }

// Serve returns the configuration to serve peers of a role. protocol is for ALPN. It may be kept: the certificate is looked up
// for each handshake.
func (i *Identity) Serve(peer Role, protocol string) *tls.Config {
	// The outer configuration keeps the keys of session tickets, also when the inner one changes.
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{protocol},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return i.config(configKey{peer: peer, protocol: protocol}), nil
		},
	}
}

// Dial returns the configuration to dial a peer of a role. It must be called for each connection.
func (i *Identity) Dial(peer Role, protocol string) *tls.Config {
	return i.config(configKey{peer: peer, protocol: protocol, dial: true})
}

// config returns the TLS configuration for a role of the peer and a protocol. It is made once for each
// certificate, because the session cache is a part of it. Every handshake, also a resumed one, verifies the name
// of the peer's role: a certificate of the pair's authority alone is not enough.
func (i *Identity) config(key configKey) *tls.Config {
	m := i.material()
	i.mu.Lock()
	defer i.mu.Unlock()
	if made := m.configs[key]; made != nil {
		return made
	}
	made := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{key.protocol},
		Certificates: []tls.Certificate{m.certificate},
		// Full records from the first one on, because these connections carry bulk traffic.
		DynamicRecordSizingDisabled: true,
		// Unlike VerifyPeerCertificate, VerifyConnection is called for resumed sessions too.
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
				return errors.New("the peer has no certificate of this pair's authority")
			}
			if err := state.PeerCertificates[0].VerifyHostname(key.peer.Name()); err != nil {
				return fmt.Errorf("the peer is not the %s: %w", key.peer, err)
			}
			if state.NegotiatedProtocol != key.protocol {
				return fmt.Errorf("the peer does not speak %s", key.protocol)
			}
			return nil
		},
	}
	if key.dial {
		made.ServerName, made.RootCAs = key.peer.Name(), m.roots
		// A resumed handshake costs a quarter of a full one. The cache belongs to this certificate: with the next one
		// every peer is authenticated again.
		made.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	} else {
		made.ClientAuth, made.ClientCAs = tls.RequireAndVerifyClientCert, m.roots
	}
	m.configs[key] = made
	return made
}

// material returns the content of the files, or the last one that was valid.
func (i *Identity) material() *material {
	if i.dir != "" {
		// On an error the last material stays in use.
		_ = i.refresh()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current
}

// refresh reads the files if they have changed. The state is taken before the content is read, so a change in between is found
// the next time.
func (i *Identity) refresh() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	var now state
	for n, name := range []string{AuthorityFile, CertificateFile, KeyFile} {
		info, err := os.Stat(filepath.Join(i.dir, name))
		if err != nil {
			return fmt.Errorf("certificates of the proxy: %w", err)
		}
		now[n] = info
	}
	if i.current != nil && now.equal(i.read) {
		return nil
	}
	var content [3][]byte
	for n, name := range []string{AuthorityFile, CertificateFile, KeyFile} {
		read, err := os.ReadFile(filepath.Join(i.dir, name))
		if err != nil {
			return fmt.Errorf("certificates of the proxy: %w", err)
		}
		content[n] = read
	}
	read, err := parse(content[0], Pair{Certificate: content[1], Key: content[2]})
	if err != nil {
		return fmt.Errorf("certificates in %s: %w", i.dir, err)
	}
	i.current, i.read = read, now
	return nil
}

func (s state) equal(other state) bool {
	for n := range s {
		if s[n].Size() != other[n].Size() || !s[n].ModTime().Equal(other[n].ModTime()) || !os.SameFile(s[n], other[n]) {
			return false
		}
	}
	return true
}

func parse(authorities []byte, pair Pair) (*material, error) {
	m := &material{roots: x509.NewCertPool(), configs: map[configKey]*tls.Config{}}
	if !m.roots.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s has no certificate in PEM", AuthorityFile)
	}
	var err error
	if m.certificate, err = tls.X509KeyPair(pair.Certificate, pair.Key); err != nil {
		// The error could quote the key.
		return nil, fmt.Errorf("%s and %s are not a certificate with its key, both in PEM", CertificateFile, KeyFile)
	}
	return m, nil
}
