package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/bergctf/berg-operator/internal/config"
)

// A credentialsError is about a file of the operator, not about the broker.
type credentialsError struct {
	setting, path string
	err           error
}

func (e *credentialsError) Error() string { return fmt.Sprintf("%s=%s: %v", e.setting, e.path, e.err) }
func (e *credentialsError) Unwrap() error { return e.err }

// credentials are the options by which a client authenticates. They read the files for each connection, since
// certificates and passwords are renewed while the operator runs.
func credentials(cfg config.Kafka) []kgo.Opt {
	opts := []kgo.Opt{kgo.Dialer(func(ctx context.Context, transport, address string) (net.Conn, error) {
		dialer := net.Dialer{Timeout: dialTimeout}
		if !cfg.TLS {
			return dialer.DialContext(ctx, transport, address)
		}
		secured, err := tlsConfig(cfg)
		if err != nil {
			return nil, err
		}
		// Only the context bounds the handshake.
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return (&tls.Dialer{NetDialer: &dialer, Config: secured}).DialContext(ctx, transport, address)
	})}
	switch cfg.SASLMechanism {
	case config.SASLNone:
	case config.SASLPlain:
		opts = append(opts, kgo.SASL(plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := readPassword(cfg)
			return plain.Auth{User: cfg.SASLUsername, Pass: password}, err
		})))
	case config.SASLScramSHA256:
		opts = append(opts, kgo.SASL(scram.Sha256(scramAuth(cfg))))
	case config.SASLScramSHA512:
		opts = append(opts, kgo.SASL(scram.Sha512(scramAuth(cfg))))
	}
	return opts
}

func scramAuth(cfg config.Kafka) func(context.Context) (scram.Auth, error) {
	return func(context.Context) (scram.Auth, error) {
		password, err := readPassword(cfg)
		return scram.Auth{User: cfg.SASLUsername, Pass: password}, err
	}
}

// checkCredentials reads every file once and returns all their errors. It is called before the first connection, so that a wrong
// file ends the start and is not found only with the first message.
func checkCredentials(cfg config.Kafka) error {
	_, tlsErr := tlsConfig(cfg)
	var passwordErr error
	if cfg.SASLMechanism != config.SASLNone {
		_, passwordErr = readPassword(cfg)
	}
	return errors.Join(tlsErr, passwordErr)
}

// tlsConfig is called for each connection. Errors name the setting and its file, and no content.
func tlsConfig(cfg config.Kafka) (*tls.Config, error) {
	result := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		authorities, err := readFile("KAFKA_CA_FILE", cfg.CAFile)
		if err != nil {
			return nil, err
		}
		result.RootCAs = x509.NewCertPool()
		if !result.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, &credentialsError{"KAFKA_CA_FILE", cfg.CAFile, errors.New("must hold certificates in PEM")}
		}
	}
	if cfg.CertificateFile != "" {
		certificate, err := readFile("KAFKA_CERTIFICATE_FILE", cfg.CertificateFile)
		if err != nil {
			return nil, err
		}
		key, err := readFile("KAFKA_KEY_FILE", cfg.KeyFile)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil { // it does not contain any part of the key
			return nil, &credentialsError{"KAFKA_CERTIFICATE_FILE", cfg.CertificateFile, fmt.Errorf("does not match KAFKA_KEY_FILE=%s: %w", cfg.KeyFile, err)}
		}
		result.Certificates = []tls.Certificate{pair}
	}
	return result, nil
}

func readPassword(cfg config.Kafka) (string, error) {
	text, err := readFile("KAFKA_SASL_PASSWORD_FILE", cfg.SASLPasswordFile)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", &credentialsError{"KAFKA_SASL_PASSWORD_FILE", cfg.SASLPasswordFile, errors.New("must hold a password")}
	}
	return password, nil
}

// readFile reads the file of a setting. The files are small.
func readFile(setting, path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		var failed *os.PathError
		if errors.As(err, &failed) { // credentialsError names the path
			err = failed.Err
		}
		return nil, &credentialsError{setting, path, err}
	}
	return text, nil
}
