// Package kafka tests the sender of messages with a real broker that is paused, killed and misconfigured. It needs no
// cluster: make test-kafka.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/hexactf/kafka"
	"github.com/bergctf/berg-operator/test/lib/broker"
)

const (
	topic = "challenge-status"
	// sendTimeout is short, so that the tests do not wait long for an expected failure.
	sendTimeout = 3 * time.Second
	// slack is how much longer than the timeout a busy machine may take to return.
	slack = 10 * time.Second
	// connectionTimeout is how long a connection is kept without answers. When it is closed, it is not known what has arrived.
	connectionTimeout = 10 * time.Second
	// arrivalTimeout is how long a message may take to arrive.
	arrivalTimeout = 60 * time.Second
)

func start(t *testing.T, opts broker.Options) *broker.Broker {
	t.Helper()
	opts.Dir, opts.Output = t.TempDir(), os.Stderr
	b, err := broker.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func follow(t *testing.T, b *broker.Broker) *broker.Log {
	t.Helper()
	log, err := b.Follow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(log.Close)
	return log
}

// at are the settings of a client without TLS and login.
func at(address string) config.Kafka {
	return config.Kafka{Brokers: []string{address}, Topic: topic, SendTimeout: sendTimeout}
}

func client(t *testing.T, cfg config.Kafka) *kafka.Client {
	t.Helper()
	c, err := kafka.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

func message(n int) string { return fmt.Sprintf(`{"user":"alice","problemId":"1","sequence":%d}`, n) }

// publish is one attempt, which must end in time with any result.
func publish(t *testing.T, c *kafka.Client, key, value string) error {
	t.Helper()
	began := time.Now()
	err := c.Publish(t.Context(), key, []byte(value))
	if took := time.Since(began); took > sendTimeout+slack {
		t.Errorf("an attempt took %s: %v", took, err)
	}
	return err
}

// eventually repeats attempts until one succeeds, as an outbox does. It returns how many failed.
func eventually(t *testing.T, c *kafka.Client, key, value string) (failed int) {
	t.Helper()
	end := time.Now().Add(arrivalTimeout)
	for {
		err := publish(t, c, key, value)
		if err == nil {
			return failed
		}
		if time.Now().After(end) {
			t.Fatalf("%s under %s: still %v", value, key, err)
		}
		failed++
		select {
		case <-t.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// expect waits until the values of a key are these. Immediate repetitions of a value are allowed, since messages are sent at
// least once; anything else is a violation.
func expect(t *testing.T, log *broker.Log, key string, values ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), arrivalTimeout)
	defer cancel()
	err := log.Await(ctx, func([]broker.Message) error {
		if got := slices.Compact(log.Of(key)); !slices.Equal(got, values) {
			return fmt.Errorf("%s has %v, want %v", key, got, values)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// refuses expects that an attempt fails for one of some reasons.
func refuses(t *testing.T, name string, cfg config.Kafka, want ...string) {
	t.Helper()
	c := client(t, cfg)
	for what, err := range map[string]error{"a message": publish(t, c, "unknown", message(0)), "a ping": c.Ping(t.Context())} {
		got := kafka.Reason(err)
		if !slices.ContainsFunc(want, func(w string) bool { return strings.Contains(got, w) }) {
			t.Errorf("%s: the reason of %s is %q, want %q, of %v", name, what, got, want, err)
		}
	}
}

func TestWaysIn(t *testing.T) {
	b := start(t, broker.Options{Topic: topic})
	log := follow(t, b)
	login := func(address string, mechanism config.SASLMechanism) config.Kafka {
		cfg := at(address)
		cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPasswordFile = mechanism, broker.User, b.PasswordFile
		return cfg
	}
	encrypted := func(cfg config.Kafka) config.Kafka {
		cfg.TLS, cfg.CAFile = true, b.CAFile
		return cfg
	}
	certified := encrypted(at(b.Certificates))
	certified.CertificateFile, certified.KeyFile = b.CertificateFile, b.KeyFile

	for name, cfg := range map[string]config.Kafka{
		"nothing":            at(b.Plaintext),
		"SCRAM-SHA-512":      login(b.PlainLogin, config.SASLScramSHA512),
		"SCRAM-SHA-256":      login(b.PlainLogin, config.SASLScramSHA256),
		"PLAIN":              login(b.PlainLogin, config.SASLPlain),
		"TLS, SCRAM-SHA-512": encrypted(login(b.Login, config.SASLScramSHA512)),
		"TLS, SCRAM-SHA-256": encrypted(login(b.Login, config.SASLScramSHA256)),
		"TLS, PLAIN":         encrypted(login(b.Login, config.SASLPlain)),
		"TLS, certificate":   certified,
	} {
		c := client(t, cfg)
		if err := c.Ping(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := publish(t, c, name, message(1)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		expect(t, log, name, message(1))
	}

	wrong := encrypted(login(b.Login, config.SASLScramSHA512))
	wrong.SASLPasswordFile = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(wrong.SASLPasswordFile, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	const password = "SASL_AUTHENTICATION_FAILED: see KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD_FILE"
	refuses(t, "a wrong password", wrong, password)
	wrong.SASLMechanism = config.SASLPlain
	refuses(t, "a wrong password, PLAIN", wrong, password)
	unknown := login(b.PlainLogin, config.SASLScramSHA256)
	unknown.SASLUsername = "unknown"
	refuses(t, "a user that is not known", unknown, password)
	other := encrypted(at(b.Certificates))
	refuses(t, "no certificate", other, "certificate: see KAFKA_CERTIFICATE_FILE", "certificate required: see KAFKA_CERTIFICATE_FILE")
	other.CAFile, other.CertificateFile, other.KeyFile = "", b.CertificateFile, b.KeyFile
	refuses(t, "an unknown authority", other, "the broker's certificate is signed by an unknown authority: see KAFKA_CA_FILE")
	const listener = "compare KAFKA_TLS and KAFKA_SASL_MECHANISM with its listener"
	refuses(t, "no login", at(b.PlainLogin), listener)
	refuses(t, "no TLS", login(b.Login, config.SASLScramSHA512), "the broker requires TLS at this address: see KAFKA_TLS and KAFKA_BROKERS")
	refuses(t, "TLS to a broker without", encrypted(at(b.Plaintext)), listener)
	refuses(t, "a login at a listener without", login(b.Plaintext, config.SASLScramSHA512), "see KAFKA_SASL_MECHANISM")

	if values := log.Of("unknown"); len(values) > 0 {
		t.Errorf("a refused message has arrived: %v", values)
	}
}

// A rule denies the operator, and is fixed: the denial breaks the client of the library.
func TestRightsThatAreGrantedLater(t *testing.T) {
	b := start(t, broker.Options{Topic: topic})
	cfg := at(b.PlainLogin)
	cfg.SASLMechanism, cfg.SASLUsername, cfg.SASLPasswordFile = config.SASLScramSHA512, broker.User, b.PasswordFile
	rule := func(work func(context.Context, *kadm.Client, *kadm.ACLBuilder) error, user string, operations ...kadm.ACLOperation) {
		t.Helper()
		err := b.Admin(func(admin *kadm.Client) error {
			return work(t.Context(), admin, kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
				Allow("User:"+user).AllowHosts().Operations(operations...))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	grant := func(ctx context.Context, admin *kadm.Client, rules *kadm.ACLBuilder) error {
		results, err := admin.CreateACLs(ctx, rules)
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
		return err
	}
	// As soon as there is a rule, everything that no rule allows is forbidden.
	rule(grant, "another", kadm.OpWrite, kadm.OpDescribe)
	c := client(t, cfg)
	first := publish(t, c, "alice-1", message(1))
	if got := kafka.Reason(first); !strings.Contains(got, "TOPIC_AUTHORIZATION_FAILED: allow the user Describe and Write on the topic") {
		t.Errorf("the reason is %q, of %v", got, first)
	}
	rule(grant, broker.User, kadm.OpDescribe)
	second := publish(t, c, "alice-1", message(1))
	if got := kafka.Reason(second); !strings.Contains(got, "AUTHORIZATION_FAILED: allow the user") {
		t.Errorf("the reason is %q, of %v", got, second)
	}
	rule(grant, broker.User, kadm.OpWrite)
	eventually(t, c, "alice-1", message(1))
	expect(t, follow(t, b), "alice-1", message(1))
}

func TestABrokerThatIsPaused(t *testing.T) {
	b := start(t, broker.Options{Topic: topic})
	log := follow(t, b)
	c := client(t, at(b.Plaintext))
	eventually(t, c, "alice-1", message(0))
	paused := time.Now()
	must(t, b.Pause())
	if err := publish(t, c, "alice-1", message(1)); err == nil || kafka.Reason(err) != "the broker does not acknowledge in time" {
		t.Errorf("the reason is %q, of %v", kafka.Reason(err), err)
	}
	must(t, b.Resume())
	eventually(t, c, "alice-1", message(1))
	expect(t, log, "alice-1", message(0), message(1))
	if got := log.Of("alice-1"); time.Since(paused) < connectionTimeout && len(got) != 2 {
		t.Errorf("alice-1 has %v: a client that knows its sends in flight repeats nothing", got)
	}

	must(t, b.Pause())
	for range 5 {
		if publish(t, c, "alice-1", message(2)) == nil {
			t.Fatal("acknowledged without a broker")
		}
	}
	// Another challenge, of which no message was sent yet.
	if err := publish(t, c, "bob-1", message(0)); err == nil {
		t.Fatal("acknowledged without a broker")
	}
	must(t, b.Resume())
	eventually(t, c, "alice-1", message(2))
	eventually(t, c, "alice-1", message(3))
	eventually(t, c, "bob-1", message(0))
	expect(t, log, "alice-1", message(0), message(1), message(2), message(3))
	expect(t, log, "bob-1", message(0))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Messages are sent continuously while the broker loses power, is stopped in order, and is restarted.
func TestABrokerThatIsKilled(t *testing.T) {
	b := start(t, broker.Options{Topic: topic})
	log := follow(t, b)
	c := client(t, at(b.Plaintext))
	const keys = 6
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sent := make([]int, keys)
	var senders sync.WaitGroup
	for k := range keys {
		senders.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				eventually(t, c, "user-"+strconv.Itoa(k), message(n))
				sent[k]++
			}
		})
	}
	arrive := func(more int) {
		t.Helper()
		before := len(log.Messages())
		ctx, cancel := context.WithTimeout(t.Context(), arrivalTimeout)
		defer cancel()
		must(t, log.Await(ctx, func(all []broker.Message) error {
			if len(all) < before+more {
				return errors.New("no message arrives any more")
			}
			return nil
		}))
	}
	arrive(100)
	must(t, b.Kill())
	must(t, b.Restart(t.Context()))
	arrive(100)
	must(t, b.Stop())
	must(t, b.Restart(t.Context()))
	arrive(100)
	stop()
	senders.Wait()
	for k := range keys {
		var want []string
		for n := range sent[k] {
			want = append(want, message(n))
		}
		expect(t, log, "user-"+strconv.Itoa(k), want...)
	}
}

// Afterwards the topic is another one of the same name.
func TestABrokerThatLosesItsDisk(t *testing.T) {
	for name, makeTopics := range map[string]bool{"an administrator creates the topic": false, "the broker creates the topic": true} {
		t.Run(name, func(t *testing.T) {
			opts := broker.Options{Topic: topic, CreateTopics: makeTopics}
			if makeTopics {
				opts.Topic = ""
			}
			b := start(t, opts)
			c := client(t, at(b.Plaintext))
			eventually(t, c, "alice-1", message(0))
			must(t, b.Kill())
			must(t, b.LoseDisk())
			must(t, b.Restart(t.Context()))
			eventually(t, c, "alice-1", message(1))
			eventually(t, c, "alice-1", message(2))
			err := b.Admin(func(admin *kadm.Client) error {
				ends, err := admin.ListEndOffsets(t.Context(), topic)
				if err != nil {
					return err
				}
				var count int64
				ends.Each(func(o kadm.ListedOffset) { count += o.Offset })
				if count < 2 {
					return fmt.Errorf("the new disk has %d messages, want 2", count)
				}
				return nil
			})
			must(t, err)
		})
	}
}

func TestATopicThatDoesNotExist(t *testing.T) {
	b := start(t, broker.Options{Topic: ""})
	c := client(t, at(b.Plaintext))
	err := publish(t, c, "alice-1", message(0))
	if got, want := kafka.Reason(err), "the broker refuses: UNKNOWN_TOPIC_OR_PARTITION: create the topic"; got != want {
		t.Errorf("the reason is %q, want %q, of %v", got, want, err)
	}
	must(t, b.Admin(func(admin *kadm.Client) error {
		_, err := admin.CreateTopic(t.Context(), 1, 1, nil, topic)
		return err
	}))
	eventually(t, c, "alice-1", message(0))
}
