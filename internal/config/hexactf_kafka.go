package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bergctf/berg-operator/internal/kit/settings"
)

// Kafka is where state changes are sent, and how the operator authenticates there. Secrets
// are files, never values: values are logged and are part of manifests. All files are read for
// each connection, so that certificates and passwords can be renewed.
type Kafka struct {
	Brokers                          []string // with a port; none: no messages are sent
	Topic                            string
	TLS                              bool
	CAFile, CertificateFile, KeyFile string // "": the authorities of the image, no client certificate
	SASLMechanism                    SASLMechanism
	SASLUsername, SASLPasswordFile   string
	SendTimeout, DeleteTimeout       time.Duration
}

// Enabled reports whether messages are sent.
func (k Kafka) Enabled() bool { return len(k.Brokers) > 0 }

// SASLMechanism is a way to authenticate to a broker.
type SASLMechanism string

// The mechanisms.
const (
	SASLNone        SASLMechanism = ""
	SASLPlain       SASLMechanism = "PLAIN"
	SASLScramSHA256 SASLMechanism = "SCRAM-SHA-256"
	SASLScramSHA512 SASLMechanism = "SCRAM-SHA-512"
)

// settings returns the rows of the table that are about Kafka.
func (k *Kafka) settings() []settings.Setting {
	return []settings.Setting{
		settings.New("KAFKA_BROKERS", "", brokers(&k.Brokers), "Comma-separated brokers to which the states of challenges are sent, each host:port. Empty: no messages are sent."),
		settings.New("KAFKA_TOPIC", "challenge-status", settings.Name(&k.Topic, topic), "Kafka topic of the messages about challenges."),
		settings.New("KAFKA_TLS", "false", settings.Bool(&k.TLS), "Whether connections to brokers are encrypted."),
		settings.New("KAFKA_CA_FILE", "", settings.Optional(settings.Path(&k.CAFile)), "PEM file with the certificate authorities that brokers' certificates are verified with. Empty: those of the image. Needs KAFKA_TLS."),
		settings.New("KAFKA_CERTIFICATE_FILE", "", settings.Optional(settings.Path(&k.CertificateFile)), "PEM file with the client certificate of the operator. Empty: none. Needs KAFKA_TLS and KAFKA_KEY_FILE."),
		settings.New("KAFKA_KEY_FILE", "", settings.Optional(settings.Path(&k.KeyFile)), "PEM file with the key of KAFKA_CERTIFICATE_FILE."),
		settings.New("KAFKA_SASL_MECHANISM", "", settings.Optional(settings.Enum(&k.SASLMechanism, SASLPlain, SASLScramSHA256, SASLScramSHA512)), "How the operator authenticates to brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Empty: without authentication."),
		settings.New("KAFKA_SASL_USERNAME", "", printable(&k.SASLUsername), "User name for KAFKA_SASL_MECHANISM."),
		settings.New("KAFKA_SASL_PASSWORD_FILE", "", settings.Optional(settings.Path(&k.SASLPasswordFile)), "File with the password for KAFKA_SASL_MECHANISM. A line feed at its end is ignored."),
		settings.New("KAFKA_SEND_TIMEOUT", "5s", settings.Duration(&k.SendTimeout), "How long one attempt to send a message waits for the broker. Another attempt follows."),
		settings.New("KAFKA_DELETE_TIMEOUT", "30s", settings.Duration(&k.DeleteTimeout), "How long the deletion of a challenge waits until its messages are sent. Messages that are not sent by then are dropped and counted."),
	}
}

// check compares the settings with each other.
func (k *Kafka) check() []error {
	var wrong []error
	if (k.CertificateFile == "") != (k.KeyFile == "") {
		wrong = append(wrong, errors.New("KAFKA_CERTIFICATE_FILE: must be set together with KAFKA_KEY_FILE"))
	}
	if !k.TLS && (k.CAFile != "" || k.CertificateFile != "" || k.KeyFile != "") {
		wrong = append(wrong, errors.New("KAFKA_TLS: must be true if KAFKA_CA_FILE, KAFKA_CERTIFICATE_FILE or KAFKA_KEY_FILE is set"))
	}
	login := k.SASLMechanism != SASLNone
	if login != (k.SASLUsername != "") || login != (k.SASLPasswordFile != "") {
		wrong = append(wrong, errors.New("KAFKA_SASL_MECHANISM: must be set together with KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD_FILE"))
	}
	return wrong
}

// warnings returns valid combinations that are probably not intended.
func (k *Kafka) warnings() []string {
	var all []string
	if k.SASLMechanism == SASLPlain && !k.TLS {
		all = append(all, "KAFKA_SASL_MECHANISM=PLAIN and KAFKA_TLS=false: the password can be read by everyone who can see the connection. Set KAFKA_TLS=true, or use SCRAM-SHA-512")
	}
	if !k.Enabled() && (k.TLS || k.SASLMechanism != SASLNone) {
		all = append(all, "KAFKA_BROKERS is empty and KAFKA_TLS or KAFKA_SASL_MECHANISM is set: no messages about challenges are sent. Set KAFKA_BROKERS")
	}
	return all
}

// defaultKafkaPort is the port of a broker that is given without one.
const defaultKafkaPort = "9092"

// brokers parses host:port, host alone, and IPv6 addresses with or without brackets. A broker that is given twice counts once.
func brokers(to *[]string) settings.Value {
	const want = "%q: must be the address of a broker such as kafka.example.com:9092"
	return settings.Func(func(text string) error {
		*to = nil
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			host, port, err := net.SplitHostPort(part)
			if err != nil { // without a port, or no address at all
				host, port = strings.TrimSuffix(strings.TrimPrefix(part, "["), "]"), defaultKafkaPort
			}
			name := strings.TrimSuffix(host, ".")
			if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(name))) > 0 {
				return fmt.Errorf(want, part)
			}
			if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
				return fmt.Errorf(want, part)
			}
			if broker := net.JoinHostPort(host, port); !slices.Contains(*to, broker) {
				*to = append(*to, broker)
			}
		}
		if text != "" && len(*to) == 0 {
			return fmt.Errorf(want, text)
		}
		return nil
	}).In(settings.Form{Type: settings.List})
}

// topicName is the syntax of Kafka for the name of a topic.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func topic(s string) []string {
	if !topicName.MatchString(s) || s == "." || s == ".." {
		return []string{"must be the name of a topic: at most 249 letters, digits, '.', '_' and '-'"}
	}
	return nil
}

// printable accepts every text that a log and a header can show, also an empty one.
func printable(to *string) settings.Value {
	return settings.Func(func(text string) error {
		*to = text
		if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
			return errors.New("must have no line feeds or other control characters")
		}
		return nil
	})
}
