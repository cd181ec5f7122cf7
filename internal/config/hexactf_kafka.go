package config

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
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
		{
			Name: "KAFKA_BROKERS", Default: "",
			Help:  "Comma-separated brokers that the states of challenges are told, each host:port. Empty: nobody is told.",
			Value: brokers(&k.Brokers),
		},
		{
			Name: "KAFKA_TOPIC", Default: "challenge-status",
			Help:  "Topic of these messages.",
			Value: settings.Name(&k.Topic, topic),
		},
		{
			Name: "KAFKA_TLS", Default: "false",
			Help:  "Whether connections to brokers are encrypted.",
			Value: settings.Bool(&k.TLS),
		},
		{
			Name: "KAFKA_CA_FILE", Default: "",
			Help:  "PEM file with the authorities that brokers' certificates are trusted by. Empty: those of the image. Needs KAFKA_TLS.",
			Value: optionalPath(&k.CAFile),
		},
		{
			Name: "KAFKA_CERTIFICATE_FILE", Default: "",
			Help:  "PEM file with the certificate that the operator shows brokers. Empty: none. Needs KAFKA_TLS and KAFKA_KEY_FILE.",
			Value: optionalPath(&k.CertificateFile),
		},
		{
			Name: "KAFKA_KEY_FILE", Default: "",
			Help:  "PEM file with the key of that certificate.",
			Value: optionalPath(&k.KeyFile),
		},
		{
			Name: "KAFKA_SASL_MECHANISM", Default: "",
			Help:  "How the operator logs in at brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Empty: not at all.",
			Value: saslMechanism(&k.SASLMechanism),
		},
		{
			Name: "KAFKA_SASL_USERNAME", Default: "",
			Help:  "Name that it logs in with.",
			Value: printable(&k.SASLUsername),
		},
		{
			Name: "KAFKA_SASL_PASSWORD_FILE", Default: "",
			Help:  "File with the password that it logs in with; a line feed at the end is no part of it.",
			Value: optionalPath(&k.SASLPasswordFile),
		},
		{
			Name: "KAFKA_SEND_TIMEOUT", Default: "5s",
			Help:  "How long one attempt to send a message waits for the broker. Another attempt follows.",
			Value: settings.Duration(&k.SendTimeout),
		},
		{
			Name: "KAFKA_DELETE_TIMEOUT", Default: "30s",
			Help:  "How long the deletion of a challenge waits for its messages to be sent. What could not be sent until then is lost, and counted.",
			Value: settings.Duration(&k.DeleteTimeout),
		},
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

func saslMechanism(to *SASLMechanism) settings.Value {
	return settings.Func(func(text string) error {
		*to = SASLMechanism(text)
		switch *to {
		case SASLNone, SASLPlain, SASLScramSHA256, SASLScramSHA512:
			return nil
		}
		return errors.New("must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or empty")
	}).In(settings.Form{Enum: []string{string(SASLNone), string(SASLPlain), string(SASLScramSHA256), string(SASLScramSHA512)}})
}

func optionalPath(to *string) settings.Value {
	return settings.Func(func(text string) error {
		*to = text
		if text != "" && !filepath.IsAbs(text) {
			return errors.New("must be an absolute path, or empty")
		}
		return nil
	})
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
