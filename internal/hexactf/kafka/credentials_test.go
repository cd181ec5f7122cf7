package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/bergctf/berg-operator/internal/config"
)

const secret = "correct-horse"

// authority signs certificates of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	dir         string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.certificate, a.key = a.issue(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes name.crt and name.key.
func (a *authority) issue(t *testing.T, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secretDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, a.file(name+".crt"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, a.file(name+".key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secretDER})))
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// listener is the configuration of a broker's side.
func (a *authority) listener(t *testing.T, clients tls.ClientAuthType) *tls.Config {
	t.Helper()
	a.issue(t, "broker", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	pair, err := tls.LoadX509KeyPair(a.file("broker.crt"), a.file("broker.key"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: clients, ClientCAs: pool, MinVersion: tls.VersionTLS12}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestEncryptedConnections(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	cluster := broker(t, kfake.TLS(a.listener(t, tls.NoClientCert)))
	base := settingsFor(cluster.ListenAddrs()...)

	good := base
	good.TLS, good.CAFile = true, a.file("ca.crt")
	publish(t, client(t, good), "key", message(1))
	arrived(t, 1, at(cluster), kgo.DialTLSConfig(trusting(a)))

	stranger := good
	stranger.CAFile = other.file("ca.crt")
	refused(t, stranger, "the broker's certificate is signed by an unknown authority: see KAFKA_CA_FILE")

	refused(t, base, "the broker closed the connection immediately: compare KAFKA_TLS and KAFKA_SASL_MECHANISM with its listener")

	good.Brokers = []string{hangsUp(t)}
	refused(t, good, "the broker closed the connection immediately: compare KAFKA_TLS and KAFKA_SASL_MECHANISM with its listener")
}

// hangsUp returns the address of a server that behaves like a broker without TLS.
func hangsUp(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = conn.Read(make([]byte, 4096))
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func trusting(a *authority) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// refused tries to publish, and compares the reason.
func refused(t *testing.T, cfg config.Kafka, want string) {
	t.Helper()
	c := client(t, cfg)
	began := time.Now()
	err := c.Publish(t.Context(), "key", message(1))
	if took := time.Since(began); took > cfg.SendTimeout+slack {
		t.Errorf("took %s", took)
	}
	if got := Reason(err); got != want {
		t.Errorf("reason %q, want %q, of %v", got, want, err)
	}
	if err := c.Ping(t.Context()); Reason(err) != want {
		t.Errorf("a ping's reason is %q, want %q, of %v", Reason(err), want, err)
	}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cluster := broker(t, kfake.TLS(a.listener(t, tls.RequireAndVerifyClientCert)))
	a.issue(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	cfg := settingsFor(cluster.ListenAddrs()...)
	cfg.TLS, cfg.CAFile = true, a.file("ca.crt")
	refused(t, cfg, "the broker refuses the TLS connection: certificate required: see KAFKA_CERTIFICATE_FILE")
	cfg.CertificateFile, cfg.KeyFile = a.file("client.crt"), a.file("client.key")
	publish(t, client(t, cfg), "key", message(1))
}

// A certificate that is renewed is used without a restart.
func TestFilesAreReadForEachConnection(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	cluster := broker(t, kfake.TLS(a.listener(t, tls.RequireAndVerifyClientCert)))
	other.issue(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	cfg := settingsFor(cluster.ListenAddrs()...)
	cfg.TLS, cfg.CAFile, cfg.CertificateFile, cfg.KeyFile = true, a.file("ca.crt"), other.file("client.crt"), other.file("client.key")
	c := client(t, cfg)
	if err := c.Publish(t.Context(), "key", message(1)); err == nil {
		t.Fatal("a certificate of another authority is accepted")
	}
	a.issue(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	for _, name := range []string{"client.crt", "client.key"} {
		text, err := os.ReadFile(a.file(name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, other.file(name), string(text))
	}
	eventually(t, c, "key", message(1))

	// The reason names a file that cannot be read any more.
	late := client(t, cfg)
	if err := os.Remove(cfg.CAFile); err != nil {
		t.Fatal(err)
	}
	if got, want := Reason(late.Publish(t.Context(), "key", message(2))), "KAFKA_CA_FILE="+cfg.CAFile+": no such file or directory"; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}

func TestLogins(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []config.SASLMechanism{config.SASLPlain, config.SASLScramSHA256, config.SASLScramSHA512} {
		t.Run(string(mechanism), func(t *testing.T) {
			cluster := broker(t, kfake.EnableSASL(), kfake.Superuser(string(mechanism), "operator", secret))
			cfg := settingsFor(cluster.ListenAddrs()...)
			refusedSomehow(t, cfg)
			cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPasswordFile = mechanism, "operator", filepath.Join(t.TempDir(), "password")
			write(t, cfg.SASLPasswordFile, "wrong")
			c := client(t, cfg)
			if err := c.Publish(t.Context(), "key", message(1)); err == nil {
				t.Fatal("a wrong password is accepted")
			}
			write(t, cfg.SASLPasswordFile, secret+"\n")
			eventually(t, c, "key", message(1))
		})
	}
}

func refusedSomehow(t *testing.T, cfg config.Kafka) {
	t.Helper()
	if err := client(t, cfg).Publish(t.Context(), "key", message(1)); err == nil {
		t.Fatal("published without a login")
	}
}

func TestErrorsOfFilesAreReportedAtTheStart(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue(t, "client", &x509.Certificate{})
	empty, garbage := a.file("empty"), a.file("garbage")
	write(t, empty, "\n")
	write(t, garbage, secret)
	for name, test := range map[string]struct {
		cfg  config.Kafka
		want string
	}{
		"no brokers":        {config.Kafka{}, "KAFKA_BROKERS"},
		"no authority":      {config.Kafka{TLS: true, CAFile: a.file("none")}, "KAFKA_CA_FILE=" + a.file("none") + ": no such file or directory"},
		"no certificates":   {config.Kafka{TLS: true, CAFile: garbage}, "KAFKA_CA_FILE=" + garbage + ": must hold certificates in PEM"},
		"no certificate":    {config.Kafka{TLS: true, CertificateFile: garbage, KeyFile: a.file("client.key")}, "KAFKA_CERTIFICATE_FILE"},
		"no key":            {config.Kafka{TLS: true, CertificateFile: a.file("client.crt"), KeyFile: a.file("none")}, "KAFKA_KEY_FILE=" + a.file("none") + ": no such file or directory"},
		"the wrong key":     {config.Kafka{TLS: true, CertificateFile: a.file("client.crt"), KeyFile: a.file("ca.key")}, "KAFKA_KEY_FILE=" + a.file("ca.key")},
		"a key of garbage":  {config.Kafka{TLS: true, CertificateFile: a.file("client.crt"), KeyFile: garbage}, "KAFKA_KEY_FILE=" + garbage},
		"no password file":  {config.Kafka{SASLMechanism: config.SASLPlain, SASLUsername: "a", SASLPasswordFile: a.file("none")}, "KAFKA_SASL_PASSWORD_FILE=" + a.file("none") + ": no such file or directory"},
		"an empty password": {config.Kafka{SASLMechanism: config.SASLPlain, SASLUsername: "a", SASLPasswordFile: empty}, "KAFKA_SASL_PASSWORD_FILE=" + empty + ": must hold a password"},
		"a directory":       {config.Kafka{SASLMechanism: config.SASLPlain, SASLUsername: "a", SASLPasswordFile: a.dir}, "KAFKA_SASL_PASSWORD_FILE=" + a.dir + ": is a directory"},
	} {
		if name != "no brokers" {
			test.cfg.Brokers = []string{"127.0.0.1:1"}
		}
		test.cfg.Topic, test.cfg.SendTimeout = topic, time.Second
		_, err := New(test.cfg)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error contains the content of the file: %v", name, err)
		}
	}
}
