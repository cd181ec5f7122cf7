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

// Identity is what one end shows, and whom it believes. It is safe for use by many at once, and
// changes while it is used: connections that are made afterwards see the new one, those that
// are there stay.
type Identity struct {
	// dir is where the files are; empty if they cannot change.
	dir string

	mu      sync.Mutex
	stamp   stamp
	current *material
}

// material is what was read at one time.
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

// stamp tells whether files have changed since they were read.
type stamp [3]struct {
	size    int64
	changed time.Time
	inode   os.FileInfo
}

// NewIdentity returns an identity that never changes. authorities holds one authority's
// certificate in PEM, or several.
func NewIdentity(authorities []byte, pair Pair) (*Identity, error) {
	read, err := parse(authorities, pair)
	if err != nil {
		return nil, err
	}
	return &Identity{current: read}, nil
}

// Files returns the identity that the files of a folder hold: AuthorityFile, CertificateFile
// and KeyFile. They are looked at with each new connection and read again when they have
// changed. If they cannot be used then, say because only one of two has been written yet, what
// was read before stays.
func Files(dir string) (*Identity, error) {
	i := &Identity{dir: dir}
	if err := i.refresh(); err != nil {
		return nil, err
	}
	return i, nil
}

// NotAfter returns when the certificate that is shown ends.
func (i *Identity) NotAfter() time.Time { return i.material().certificate.Leaf.NotAfter }

// Serve returns how to serve a peer of a role. protocol is that of ALPN.
func (i *Identity) Serve(peer Role, protocol string) *tls.Config {
	// The outer one keeps the keys of session tickets for all that come after it.
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{protocol},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return i.config(configKey{peer: peer, protocol: protocol}), nil
		},
	}
}

// Dial returns how to dial a peer of a role, now: ask again for each connection.
func (i *Identity) Dial(peer Role, protocol string) *tls.Config {
	return i.config(configKey{peer: peer, protocol: protocol, dial: true})
}

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
		// A record of full size from the first one on: bulk is what these connections are for.
		DynamicRecordSizingDisabled: true,
		// VerifyConnection is asked for resumed sessions, too.
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
				return errors.New("the peer shows no certificate of this pair's authority")
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
		// Handshakes after the first cost a quarter. The cache belongs to this certificate: with
		// the next one everybody proves himself anew.
		made.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	} else {
		made.ClientAuth, made.ClientCAs = tls.RequireAndVerifyClientCert, m.roots
	}
	m.configs[key] = made
	return made
}

// material returns what the files hold now, or held when they could last be read.
func (i *Identity) material() *material {
	if i.dir != "" {
		// Nothing can be done about an error here that whoever writes the files will not do anyhow.
		_ = i.refresh()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.current
}

// refresh reads the files if they have changed.
func (i *Identity) refresh() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	var now stamp
	for n, name := range []string{AuthorityFile, CertificateFile, KeyFile} {
		info, err := os.Stat(filepath.Join(i.dir, name))
		if err != nil {
			return fmt.Errorf("certificates of the proxy: %w", err)
		}
		now[n].size, now[n].changed, now[n].inode = info.Size(), info.ModTime(), info
	}
	if i.current != nil && now.equal(i.stamp) {
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
	i.current, i.stamp = read, now
	return nil
}

func (s stamp) equal(other stamp) bool {
	for n := range s {
		if s[n].size != other[n].size || !s[n].changed.Equal(other[n].changed) || !os.SameFile(s[n].inode, other[n].inode) {
			return false
		}
	}
	return true
}

func parse(authorities []byte, pair Pair) (*material, error) {
	m := &material{roots: x509.NewCertPool(), configs: map[configKey]*tls.Config{}}
	if !m.roots.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", AuthorityFile)
	}
	var err error
	if m.certificate, err = tls.X509KeyPair(pair.Certificate, pair.Key); err != nil {
		// What is wrong with a key is not told: it could quote it.
		return nil, fmt.Errorf("%s and %s are no certificate with its key, both in PEM", CertificateFile, KeyFile)
	}
	return m, nil
}
