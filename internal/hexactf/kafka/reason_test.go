package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestReasons(t *testing.T) {
	remote := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 9092}
	local := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 54321}
	dial := &net.OpError{Op: "dial", Net: "tcp", Addr: remote, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"none":            {nil, ""},
		"refused":         {fmt.Errorf("unable to dial: %w", dial), "broker 10.0.0.1:9092: connection refused"},
		"reset":           {&net.OpError{Op: "read", Net: "tcp", Source: local, Addr: remote, Err: os.NewSyscallError("read", syscall.ECONNRESET)}, "broker 10.0.0.1:9092: connection reset by peer"},
		"no answer":       {&net.OpError{Op: "dial", Net: "tcp", Addr: remote, Err: os.ErrDeadlineExceeded}, "broker 10.0.0.1:9092: it does not answer"},
		"no name":         {&net.OpError{Op: "dial", Err: &net.DNSError{Name: "kafka", Server: "10.0.0.3:53", IsNotFound: true}}, "broker kafka: no address is known for it"},
		"names fail":      {&net.DNSError{Name: "kafka", IsTemporary: true}, "broker kafka: name resolution fails"},
		"in time, why":    {&unansweredError{dial}, "broker 10.0.0.1:9092: connection refused"},
		"in time":         {&unansweredError{}, "the broker does not acknowledge in time"},
		"in time, odd":    {&unansweredError{errors.New("odd thing")}, "odd thing"},
		"requires TLS":    {&unansweredError{errors.New("invalid large response size 352518912 > limit 104857600; the first three bytes received appear to be a tls alert record for TLS v1.2; is this a plaintext connection speaking to a tls endpoint?")}, "the broker requires TLS at this address: see KAFKA_TLS and KAFKA_BROKERS"},
		"required":        {errors.New("remote error: tls: certificate required"), "the broker refuses the TLS connection: certificate required: see KAFKA_CERTIFICATE_FILE"},
		"given up, why":   {fmt.Errorf("%w, last err: %w", kgo.ErrRecordTimeout, dial), "broker 10.0.0.1:9092: connection refused"},
		"given up":        {kgo.ErrRecordTimeout, "the broker does not acknowledge in time"},
		"password":        {fmt.Errorf("%w: %s", kerr.SaslAuthenticationFailed, "Authentication failed"), "the broker refuses: SASL_AUTHENTICATION_FAILED: see KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD_FILE"},
		"topic":           {kerr.TopicAuthorizationFailed, "the broker refuses: TOPIC_AUTHORIZATION_FAILED: allow the user Describe and Write on the topic"},
		"no advice":       {kerr.UnknownServerError, "the broker refuses: UNKNOWN_SERVER_ERROR: " + kerr.UnknownServerError.Description},
		"plaintext":       {fmt.Errorf("dial: %w", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}), "the broker does not speak TLS at this address: see KAFKA_TLS and KAFKA_BROKERS"},
		"certificate":     {&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, "the broker refuses the TLS connection: tls: bad certificate: see KAFKA_CERTIFICATE_FILE"},
		"full":            {ErrFull, "too many messages wait for the broker already"},
		"closed":          {ErrClosed, "the sender has ended"},
		"abandoned":       {kgo.ErrClientClosed, "the connection was closed because the broker acknowledged nothing"},
		"anything else":   {errors.New("read tcp 10.0.0.2:54321->10.0.0.1:9092: odd\x00\n  thing"), "read tcp 10.0.0.1:9092: odd thing"},
		"end of a stream": {io.EOF, "the broker closed the connection"},
		"end of a wait":   {context.DeadlineExceeded, "the broker does not acknowledge in time"},
	} {
		if got := Reason(test.err); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestReasonsOfSeveralBrokers(t *testing.T) {
	one, several := &Client{}, &Client{}
	one.cfg.Brokers, several.cfg.Brokers = []string{"a:1"}, []string{"a:1", "b:1"}
	dial := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.ParseIP("fd00::1"), Port: 9092}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for name, test := range map[string]struct {
		err            error
		alone, several string
	}{
		"none":          {nil, "", ""},
		"refused":       {&unansweredError{dial}, "broker [fd00::1]:9092: connection refused", "a broker: connection refused"},
		"no name":       {&net.DNSError{Name: "kafka", IsNotFound: true}, "broker kafka: no address is known for it", "a broker: no address is known for it"},
		"the cluster's": {kerr.TopicAuthorizationFailed, "the broker refuses: TOPIC_AUTHORIZATION_FAILED: allow the user Describe and Write on the topic", "the broker refuses: TOPIC_AUTHORIZATION_FAILED: allow the user Describe and Write on the topic"},
		"anything else": {errors.New("read tcp 10.0.0.1:9092: odd thing"), "read tcp 10.0.0.1:9092: odd thing", "read tcp a broker: odd thing"},
	} {
		if got := one.Reason(test.err); got != test.alone {
			t.Errorf("%s, one broker: %q, want %q", name, got, test.alone)
		}
		if got := several.Reason(test.err); got != test.several {
			t.Errorf("%s, several brokers: %q, want %q", name, got, test.several)
		}
	}
}

func TestLastErrorOfTheLibrary(t *testing.T) {
	t.Parallel()
	met := errors.New("odd thing")
	if got := lastError(fmt.Errorf("%w, last err: %w", kgo.ErrRecordTimeout, met)); !errors.Is(got, met) {
		t.Errorf("got %v", got)
	}
	if got := lastError(kgo.ErrRecordTimeout); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestReasonsAreShort(t *testing.T) {
	got := Reason(errors.New(strings.Repeat("ü", 1000)))
	if len(got) > maxReason || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
