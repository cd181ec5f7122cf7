package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxReason is the length of a reason in bytes.
const maxReason = 300

// Reason returns why a message was not acknowledged, as one line for a condition or an event: the answer of the broker,
// or why it cannot be reached, and the setting to check if there is one. The same problem has the same text at each
// attempt. "" for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	return oneLine(reason(err))
}

// Reason is the Reason of the package for the brokers of this client. If there are several, it contains no address: it is
// random which of them an attempt used last, and a text that changes with it would be written again at each attempt.
func (c *Client) Reason(err error) string {
	if len(c.cfg.Brokers) < 2 {
		return Reason(err)
	}
	var name *net.DNSError
	var op *net.OpError
	text := Reason(err)
	if errors.As(err, &name) || errors.As(err, &op) {
		text = brokerPrefix.ReplaceAllString(text, "a broker: ")
	}
	return brokerAddress.ReplaceAllString(text, "a broker")
}

var (
	// brokerPrefix is the beginning of the texts of network about one broker.
	brokerPrefix = regexp.MustCompile(`^broker \S+: `)
	// brokerAddress matches an address in the texts of the library.
	brokerAddress = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+:\d+\b|\[[0-9a-fA-F:.]+(%\w+)?\]:\d+\b`)
)

// The more precise cases come first, as an error may be several of them.
func reason(err error) string {
	var said *kerr.Error
	var file *credentialsError
	var hangUp *kgo.ErrFirstReadEOF
	var unanswered *unansweredError
	if errors.As(err, &unanswered) && unanswered.last != nil {
		return reason(unanswered.last)
	}
	switch {
	case errors.As(err, &file):
		return file.Error()
	case errors.As(err, &said):
		return refusal(said)
	case errors.As(err, &hangUp):
		return "the broker closed the connection immediately: compare KAFKA_TLS and KAFKA_SASL_MECHANISM with its listener"
	}
	if text := encryption(err); text != "" {
		return text
	}
	if text := network(err); text != "" {
		return text
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the broker closed the connection"
	case errors.As(err, &unanswered), errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, context.DeadlineExceeded):
		return "the broker does not acknowledge in time"
	case errors.Is(err, kgo.ErrClientClosed):
		return "the connection was closed because the broker acknowledged nothing"
	}
	return err.Error()
}

// advice is the remedy when a broker refuses, by its error code.
var advice = map[int16]string{
	kerr.SaslAuthenticationFailed.Code:   "see KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD_FILE",
	kerr.UnsupportedSaslMechanism.Code:   "see KAFKA_SASL_MECHANISM",
	kerr.IllegalSaslState.Code:           "see KAFKA_SASL_MECHANISM",
	kerr.TopicAuthorizationFailed.Code:   "allow the user Describe and Write on the topic",
	kerr.ClusterAuthorizationFailed.Code: "allow the user Write on the topic",
	kerr.UnknownTopicOrPartition.Code:    "create the topic",
	kerr.UnknownTopicID.Code:             "the topic was created again",
	kerr.NotEnoughReplicas.Code:          "too few of the topic's replicas are in sync",
}

func refusal(e *kerr.Error) string {
	text := "the broker refuses: " + e.Message
	if action := advice[e.Code]; action != "" {
		return text + ": " + action
	}
	return text + ": " + e.Description
}

// encryption returns "" for errors that are not about TLS.
func encryption(err error) string {
	var unknown x509.UnknownAuthorityError
	var verification *tls.CertificateVerificationError
	var plaintext tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &unknown):
		return "the broker's certificate is signed by an unknown authority: see KAFKA_CA_FILE"
	case errors.As(err, &verification):
		return "the broker's certificate is not valid: " + verification.Err.Error()
	case errors.As(err, &plaintext):
		return "the broker does not speak TLS at this address: see KAFKA_TLS and KAFKA_BROKERS"
	case errors.As(err, &alert):
		return fmt.Sprintf("the broker refuses the TLS connection: %v: see KAFKA_CERTIFICATE_FILE", alert)
	}
	// Other errors have no type: alerts after the handshake, and answers in TLS to a client that does not use it.
	text := err.Error()
	if _, alert, found := strings.Cut(text, "remote error: tls: "); found {
		return "the broker refuses the TLS connection: " + alert + ": see KAFKA_CERTIFICATE_FILE"
	}
	if strings.Contains(text, "tls alert record") {
		return "the broker requires TLS at this address: see KAFKA_TLS and KAFKA_BROKERS"
	}
	return ""
}

// network leaves out parts of an error that differ between attempts, such as the local port, so
// that a status does not change with each of them.
func network(err error) string {
	var name *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &name):
		detail := "no address is known for it"
		if !name.IsNotFound {
			detail = "name resolution fails"
		}
		return fmt.Sprintf("broker %s: %s", name.Name, detail)
	case errors.As(err, &op):
		inner := op.Err
		var call *os.SyscallError
		if errors.As(inner, &call) {
			inner = call.Err
		}
		if op.Timeout() {
			inner = errors.New("it does not answer")
		}
		if op.Addr == nil {
			return fmt.Sprintf("the broker cannot be reached: %v", inner)
		}
		return fmt.Sprintf("broker %s: %v", op.Addr, inner)
	}
	return ""
}

// localAddress matches the local end of a connection in the text of an error.
var localAddress = regexp.MustCompile(`\S+:\d+->`)

// oneLine returns a text as one line without control characters, of maxReason bytes at most.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, localAddress.ReplaceAllString(text, ""))
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxReason {
		return text
	}
	cut := maxReason - len("…")
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
