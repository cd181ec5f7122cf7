package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newAuthority(t *testing.T, now time.Time) *Authority {
	t.Helper()
	a, err := NewAuthority("test", now, 100*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *Authority, role Role, now time.Time) Pair {
	t.Helper()
	pair, err := a.Issue(role, now, 3*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestLeaves(t *testing.T) {
	now := time.Now()
	a, other := newAuthority(t, now), newAuthority(t, now)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Certificate)
	for role, may := range map[Role][2]bool{ClientProxy: {true, false}, ServerProxy: {true, true}, Controller: {false, true}} {
		pair := issue(t, a, role, now)
		both, err := tls.X509KeyPair(pair.Certificate, pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		leaf := both.Leaf
		for n, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: role.Name(), KeyUsages: []x509.ExtKeyUsage{usage}})
			if (err == nil) != may[n] {
				t.Errorf("%s, usage %d: %v", role, usage, err)
			}
		}
		if !a.Signed(pair.Certificate, role) || other.Signed(pair.Certificate, role) || a.Signed(pair.Certificate, "another") {
			t.Errorf("%s: Signed does not distinguish authorities and roles", role)
		}
		if leaf.IsCA {
			t.Errorf("%s is an authority", role)
		}
	}
	if _, err := a.Issue("another", now, time.Hour); err == nil {
		t.Error("an unknown role has a certificate")
	}
	if _, err := a.Issue(Controller, now.Add(200*time.Hour), time.Hour); err == nil {
		t.Error("an authority signs after its end")
	}
	late, err := a.Issue(Controller, now.Add(99*time.Hour), 50*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, end, err := RenewAt(late.Certificate); err != nil || end.After(a.NotAfter()) {
		t.Errorf("a leaf outlives its authority: %s, %v", end, err)
	}
}

func TestRenewAt(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	pair := issue(t, newAuthority(t, now), Controller, now)
	renew, end, err := RenewAt(pair.Certificate)
	if err != nil || !end.Equal(now.Add(3*time.Hour)) {
		t.Fatalf("%s, %v", end, err)
	}
	if after := renew.Sub(now); after != 2*time.Hour {
		t.Errorf("renewed after %s of three hours, want two thirds", after)
	}
	short, err := newAuthority(t, now).Issue(Controller, now, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if renew, _, err := RenewAt(short.Certificate); err != nil || renew.Sub(now) != 20*time.Second {
		t.Errorf("renewed after %s of thirty seconds, want two thirds; %v", renew.Sub(now), err)
	}
	if _, _, err := RenewAt([]byte("no")); err == nil {
		t.Error("what is no certificate has an end")
	}
}

func TestParseAuthority(t *testing.T) {
	now := time.Now()
	a, other := newAuthority(t, now), newAuthority(t, now)
	if again, err := ParseAuthority(a.Pair); err != nil || !again.Signed(issue(t, again, Controller, now).Certificate, Controller) {
		t.Errorf("%v", err)
	}
	leaf := issue(t, a, Controller, now)
	for name, pair := range map[string]Pair{
		"nothing":            {},
		"another one's key":  {Certificate: a.Certificate, Key: other.Key},
		"no authority":       leaf,
		"no key":             {Certificate: a.Certificate},
		"key in place of it": {Certificate: a.Key, Key: a.Key},
		"broken key":         {Certificate: a.Certificate, Key: []byte("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n")},
	} {
		if _, err := ParseAuthority(pair); err == nil || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// shake lets two identities meet, and returns what each says.
func shake(dials, serves *tls.Config) (dial, serve error) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	done := make(chan error, 1)
	go func() {
		server := tls.Server(b, serves)
		err := server.Handshake()
		if err == nil {
			_, err = server.Write([]byte("x"))
		}
		_ = b.Close()
		done <- err
	}()
	client := tls.Client(a, dials)
	_, err := io.ReadFull(client, make([]byte, 1))
	_ = a.Close()
	return err, <-done
}

func TestWhoMeetsWhom(t *testing.T) {
	now := time.Now()
	a, other := newAuthority(t, now), newAuthority(t, now)
	who := map[string]*Identity{}
	for name, pair := range map[string]Pair{
		"client": issue(t, a, ClientProxy, now), "server": issue(t, a, ServerProxy, now), "controller": issue(t, a, Controller, now),
		"foreign server": issue(t, other, ServerProxy, now),
	} {
		by := a
		if strings.HasPrefix(name, "foreign") {
			by = other
		}
		identity, err := NewIdentity(by.Certificate, pair)
		if err != nil {
			t.Fatal(err)
		}
		who[name] = identity
	}
	for _, c := range []struct {
		dials  string
		wants  Role
		serves string
		takes  Role
		meet   bool
	}{
		{"server", ClientProxy, "client", ServerProxy, true},
		{"controller", ServerProxy, "server", Controller, true},
		{"controller", ClientProxy, "client", ServerProxy, false},
		{"client", ServerProxy, "server", Controller, false},
		{"server", ClientProxy, "server", ServerProxy, false},
		{"server", ServerProxy, "client", ServerProxy, false},
		{"foreign server", ClientProxy, "client", ServerProxy, false},
	} {
		t.Run(fmt.Sprintf("%s at %s", c.dials, c.serves), func(t *testing.T) {
			dial, serve := shake(who[c.dials].Dial(c.wants, "p"), who[c.serves].Serve(c.takes, "p"))
			if err := errors.Join(dial, serve); (err == nil) != c.meet {
				t.Errorf("dial: %v, serve: %v", dial, serve)
			}
		})
	}
	if dial, serve := shake(who["server"].Dial(ClientProxy, "p"), who["client"].Serve(ServerProxy, "q")); errors.Join(dial, serve) == nil {
		t.Error("they speak different protocols, and meet")
	}
}

func TestFiles(t *testing.T) {
	now := time.Now()
	a := newAuthority(t, now)
	dir := t.TempDir()
	write := func(name string, content []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path+".new", content, 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Files(dir); err == nil || !strings.Contains(err.Error(), AuthorityFile) {
		t.Errorf("no files: %v", err)
	}
	first := issue(t, a, Controller, now)
	write(AuthorityFile, a.Certificate)
	write(CertificateFile, first.Certificate)
	write(KeyFile, []byte("-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n"))
	if _, err := Files(dir); err == nil || !strings.Contains(err.Error(), KeyFile) || strings.Contains(err.Error(), "c2VjcmV0") {
		t.Errorf("a broken key: %v", err)
	}
	write(KeyFile, first.Key)
	identity, err := Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	before := identity.Dial(ServerProxy, "p")
	if identity.Dial(ServerProxy, "p") != before {
		t.Error("another config without a change: resumption would not work")
	}
	second, err := a.Issue(Controller, now, 9*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	// Only half of it is there yet.
	write(CertificateFile, second.Certificate)
	if !identity.NotAfter().Before(now.Add(4 * time.Hour)) {
		t.Error("a certificate without its key is in use")
	}
	write(KeyFile, second.Key)
	if !identity.NotAfter().After(now.Add(8 * time.Hour)) {
		t.Error("the new certificate is not in use")
	}
	if identity.Dial(ServerProxy, "p") == before {
		t.Error("sessions of the old certificate continue")
	}
	if err := os.Remove(filepath.Join(dir, KeyFile)); err != nil {
		t.Fatal(err)
	}
	if !identity.NotAfter().After(now.Add(8 * time.Hour)) {
		t.Error("what was read is lost with its file")
	}
}
