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

// Kafka is where transitions are told, and how the operator proves who it is there. Secrets
// are files, never values: values are logged, and stand in manifests.
type Kafka struct {
	// Brokers are addresses with a port. None: nothing is told.
	Brokers []string
	// Topic is where messages go.
	Topic string
	// TLS says whether connections are encrypted. The files are read for each connection, so
	// that a certificate may be renewed; "" stands for the authorities that the image trusts,
	// and for no certificate of our own.
	TLS                              bool
	CAFile, CertificateFile, KeyFile string
	// SASLMechanism is how the operator logs in, "" for not at all. The file with the password
	// is read for each connection.
	SASLMechanism                  SASLMechanism
	SASLUsername, SASLPasswordFile string
	// SendTimeout is how long one attempt to send a message waits for the broker.
	SendTimeout time.Duration
	// DeleteTimeout is how long a deletion waits for its messages to be sent.
	DeleteTimeout time.Duration
}

// Enabled reports whether there is a broker to tell.
func (k Kafka) Enabled() bool { return len(k.Brokers) > 0 }

// SASLMechanism is a way to log in at a broker.
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
		settings.New("KAFKA_BROKERS", "", brokers(&k.Brokers), "Comma-separated brokers that the states of challenges are told, each host:port. Empty: nobody is told."),
		settings.New("KAFKA_TOPIC", "challenge-status", settings.Name(&k.Topic, topic), "Topic of these messages."),
		settings.New("KAFKA_TLS", "false", settings.Bool(&k.TLS), "Whether connections to brokers are encrypted."),
		settings.New("KAFKA_CA_FILE", "", settings.Optional(settings.Path(&k.CAFile)), "PEM file with the authorities that brokers' certificates are trusted by. Empty: those of the image. Needs KAFKA_TLS."),
		settings.New("KAFKA_CERTIFICATE_FILE", "", settings.Optional(settings.Path(&k.CertificateFile)), "PEM file with the certificate that the operator shows brokers. Empty: none. Needs KAFKA_TLS and KAFKA_KEY_FILE."),
		settings.New("KAFKA_KEY_FILE", "", settings.Optional(settings.Path(&k.KeyFile)), "PEM file with the key of that certificate."),
		settings.New("KAFKA_SASL_MECHANISM", "", settings.Optional(settings.OneOf(&k.SASLMechanism, SASLPlain, SASLScramSHA256, SASLScramSHA512)), "How the operator logs in at brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Empty: not at all."),
		settings.New("KAFKA_SASL_USERNAME", "", printable(&k.SASLUsername), "Name that it logs in with."),
		settings.New("KAFKA_SASL_PASSWORD_FILE", "", settings.Optional(settings.Path(&k.SASLPasswordFile)), "File with the password that it logs in with; a line feed at the end is no part of it."),
		settings.New("KAFKA_SEND_TIMEOUT", "5s", settings.Duration(&k.SendTimeout), "How long one attempt to send a message waits for the broker. Another attempt follows."),
		settings.New("KAFKA_DELETE_TIMEOUT", "30s", settings.Duration(&k.DeleteTimeout), "How long the deletion of a challenge waits for its messages to be sent. What could not be sent until then is lost, and counted."),
	}
}

// check compares the settings with each other.
func (k *Kafka) check() []error {
	var wrong []error
	if (k.CertificateFile == "") != (k.KeyFile == "") {
		wrong = append(wrong, errors.New("KAFKA_CERTIFICATE_FILE: must be set together with KAFKA_KEY_FILE"))
	}
	if !k.TLS && (k.CAFile != "" || k.CertificateFile != "" || k.KeyFile != "") {
		wrong = append(wrong, errors.New("KAFKA_TLS: must be true where KAFKA_CA_FILE, KAFKA_CERTIFICATE_FILE or KAFKA_KEY_FILE is set"))
	}
	login := k.SASLMechanism != SASLNone
	if login != (k.SASLUsername != "") || login != (k.SASLPasswordFile != "") {
		wrong = append(wrong, errors.New("KAFKA_SASL_MECHANISM: must be set together with KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD_FILE"))
	}
	return wrong
}

// warnings returns what can be meant and hardly is.
func (k *Kafka) warnings() []string {
	var all []string
	if k.SASLMechanism == SASLPlain && !k.TLS {
		all = append(all, "KAFKA_SASL_MECHANISM=PLAIN and KAFKA_TLS=false: the password can be read by all who see the connection. Set KAFKA_TLS=true, or use SCRAM-SHA-512")
	}
	if !k.Enabled() && (k.TLS || k.SASLMechanism != SASLNone) {
		all = append(all, "KAFKA_BROKERS is empty and KAFKA_TLS or KAFKA_SASL_MECHANISM is set: nobody is told the states of challenges. Set KAFKA_BROKERS")
	}
	return all
}

// defaultKafkaPort is where a broker is that is named without a port.
const defaultKafkaPort = "9092"

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

// topicName is what Kafka allows as the name of a topic.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func topic(s string) []string {
	if !topicName.MatchString(s) || s == "." || s == ".." {
		return []string{"must be the name of a topic: at most 249 letters, digits, '.', '_' and '-'"}
	}
	return nil
}

func printable(to *string) settings.Value {
	return settings.Func(func(text string) error {
		*to = text
		if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
			return errors.New("must have no line feeds or other control characters")
		}
		return nil
	})
}
