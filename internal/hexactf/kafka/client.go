package kafka

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bergctf/berg-operator/internal/config"
)

const (
	// maxSends is how many sends are in flight, and how many delivered messages are remembered whose caller has not asked
	// again. With some hundred bytes each, both take a few megabytes of memory.
	maxSends = 4096
	// maxValue bounds one message, far below the 1 MB that brokers take by default.
	maxValue = 64 << 10

	dialTimeout = 5 * time.Second
	// answerTimeout is how long a broker may process a request. A connection without answers is closed after twice that.
	answerTimeout = 5 * time.Second
	// idleTimeout is below the ten minutes after which brokers close a connection: a new connection delays a message by a
	// third of a second.
	idleTimeout = 8 * time.Minute

	// The delays between two replacements of a broken producer.
	minReplaceDelay, maxReplaceDelay = time.Second, 10 * time.Second
)

// Errors that do not come from the broker.
var (
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the sender has ended")
	// ErrFull is returned while too many messages wait for the broker.
	ErrFull = errors.New("too many messages wait for the broker already")
)

// An unansweredError is returned when the broker has not acknowledged in time.
type unansweredError struct {
	last error // error of the last attempt to connect; nil if it succeeded
}

func (e *unansweredError) Error() string {
	if e.last == nil {
		return "the broker has not acknowledged in time"
	}
	return fmt.Sprintf("the broker has not acknowledged in time: %v", e.last)
}

func (e *unansweredError) Unwrap() error { return e.last }

// Client sends messages to one topic. It is safe for concurrent use. mu guards the fields below it. No call of the library that
// may wait is made with it.
type Client struct {
	cfg      config.Kafka
	opts     []kgo.Opt
	now      func() time.Time
	maxSends int // limit of sends, and of delivered

	mu           sync.Mutex
	current      *producer         // nil after Close
	retired      sync.WaitGroup    // replaced producers, until their last message is answered
	sends        map[string]*send  // in flight, by key
	delivered    map[string][]byte // acknowledged when no caller waited any more, by key
	connectErr   error             // error of the last attempt to connect; nil once one succeeds
	replaced     time.Time         // when current replaced a broken one
	replaceDelay time.Duration     // before the next replacement
}

// producer is a client of the library.
type producer struct {
	*kgo.Client
	broken bool // may not recover from its last error
}

// send is one message in flight.
type send struct {
	value   []byte
	waiters int
	done    chan struct{} // closed once err is known
	err     error
}

// New returns a client of the brokers in cfg. It reads the files that cfg names, and returns an error that names the
// setting of an invalid file. It does not connect.
func New(cfg config.Kafka) (*Client, error) { return newClient(cfg) }

func newClient(cfg config.Kafka, options ...kgo.Opt) (*Client, error) {
	if !cfg.Enabled() {
		return nil, errors.New("KAFKA_BROKERS: must name a broker")
	}
	if err := checkCredentials(cfg); err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, now: time.Now, maxSends: maxSends,
		sends: map[string]*send{}, delivered: map[string][]byte{},
	}
	c.opts = append(credentials(cfg),
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.ClientID("berg-operator"),
		kgo.DefaultProduceTopic(cfg.Topic),
		// A broker that lost its disk, or is new, creates the topic if it is configured to create topics.
		kgo.AllowAutoTopicCreation(),
		// The consumers of this topic need an additional library for each compression.
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		// The same partition for a key as with the previous operator, whose messages may be in the topic.
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(kgo.SaramaCompatHasher(fnv32a))),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(maxSends),
		// Shorter than our own timeout, so that a record that no broker received is given up, with the reason.
		kgo.RecordDeliveryTimeout(max(time.Second, cfg.SendTimeout*4/5)),
		// Also a record that a broker may have received: otherwise a broker that never acknowledges it would block its key.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.ProduceRequestTimeout(answerTimeout),
		kgo.RequestTimeoutOverhead(answerTimeout),
		kgo.ConnIdleTimeout(idleTimeout),
		// A retry waits for metadata, which are requested no more often than this.
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.WithHooks((*connections)(c)),
		kgo.DisableClientMetrics(),
	)
	c.opts = append(c.opts, options...)
	library, err := kgo.NewClient(c.opts...)
	if err != nil {
		return nil, fmt.Errorf("create a Kafka client: %w", err)
	}
	c.current = &producer{Client: library}
	return c, nil
}

func fnv32a(key []byte) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write(key) // never fails
	return hash.Sum32()
}

// Publish sends value, one JSON object, under key and returns when the broker has acknowledged it. Otherwise it returns
// an error, at the latest when ctx or KAFKA_SEND_TIMEOUT ends; the message may arrive nevertheless. Reason turns the
// error into the text of a condition.
func (c *Client) Publish(ctx context.Context, key string, value []byte) error {
	if err := check(key, value); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SendTimeout)
	defer cancel()
	for {
		s, same, err := c.startSend(key, value) //nolint:contextcheck // a send outlives its callers
		if err != nil {
			return err
		}
		select {
		case <-s.done:
			if same {
				return s.err
			}
		case <-ctx.Done():
			if same {
				return c.stopWaiting(s)
			}
			// This may be the last caller that waits for the message before its own.
			return c.unanswered()
		}
	}
}

// check refuses messages that stop consumers. An empty value asks Kafka to delete the key, and consumers of JSON fail on
// it permanently.
func check(key string, value []byte) error {
	switch trimmed := bytes.TrimLeft(value, " \t\r\n"); {
	case key == "":
		return errors.New("a message without a key is not sent: its order would be lost")
	case len(value) > maxValue:
		return fmt.Errorf("a message of %d bytes is not sent: the limit is %d", len(value), maxValue)
	case len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(value):
		return errors.New("a message that is not one JSON object is not sent")
	}
	return nil
}

// startSend returns the send of this value, and true. While another value of the same key is in flight, it returns that
// send and false. The check for a send of the same key and the entry of the new one happen under one lock, so a key never has
// two.
func (c *Client) startSend(key string, value []byte) (s *send, same bool, err error) {
	c.mu.Lock()
	if c.current == nil {
		c.mu.Unlock()
		return nil, false, ErrClosed
	}
	if s = c.sends[key]; s != nil {
		defer c.mu.Unlock()
		if same = bytes.Equal(s.value, value); same {
			s.waiters++
		}
		return s, same, nil
	}
	if late, ok := c.delivered[key]; ok {
		delete(c.delivered, key)
		if bytes.Equal(late, value) {
			c.mu.Unlock()
			return &send{done: closed}, true, nil
		}
	}
	if len(c.sends) >= c.maxSends {
		c.mu.Unlock()
		return nil, false, ErrFull
	}
	s = &send{value: bytes.Clone(value), waiters: 1, done: make(chan struct{})}
	c.sends[key] = s
	p := c.usable()
	c.mu.Unlock()

	// Not with the caller's context: a message that may have reached the broker cannot be called back, and the delivery
	// timeout gives up one that has not.
	p.TryProduce(context.Background(), &kgo.Record{Key: []byte(key), Value: s.value}, func(_ *kgo.Record, err error) {
		c.completed(p, key, s, err)
	})
	return s, true, nil
}

// closed is a closed channel.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// completed records the result of a send. err is set before done is closed, so a waiter that sees done may read err without the
// lock.
func (c *Client) completed(p *producer, key string, s *send, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, kgo.ErrRecordTimeout) {
		err = &unansweredError{cmp.Or(lastError(err), c.connectErr)}
	}
	s.err = err
	close(s.done)
	delete(c.sends, key)
	switch {
	case err == nil:
		c.replaceDelay = 0
		// The next attempt to publish the value gets its answer from here, and no second copy is sent.
		if s.waiters == 0 {
			c.remember(key, s.value)
		}
	case breaksProducer(err):
		p.broken = true
	}
}

// lastError returns the library's last error before a record timed out, nil if it does not report one.
func lastError(timeout error) error {
	if both, ok := timeout.(interface{ Unwrap() []error }); ok {
		all := both.Unwrap()
		return all[len(all)-1]
	}
	return nil
}

// remember keeps a value that was acknowledged when no caller waited any more. If there are too many, any other value is
// forgotten and will be sent once more.
func (c *Client) remember(key string, value []byte) {
	if len(c.delivered) >= c.maxSends {
		for other := range c.delivered {
			delete(c.delivered, other)
			break
		}
	}
	c.delivered[key] = value
}

// stopWaiting ends the wait for a send, which stays in flight.
func (c *Client) stopWaiting(s *send) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-s.done:
		return s.err
	default:
		s.waiters--
		return &unansweredError{c.connectErr}
	}
}

func (c *Client) unanswered() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &unansweredError{c.connectErr}
}

// breaksProducer reports whether a client of the library may fail permanently after err. Replacing one that would not
// costs a third of a second.
func breaksProducer(err error) bool {
	switch {
	case errors.As(err, new(*unansweredError)), errors.Is(err, kgo.ErrMaxBuffered), errors.Is(err, kgo.ErrClientClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge), errors.Is(err, kerr.InvalidRecord):
		return false
	}
	return true
}

// usable returns the producer for the next message: the current one, or its replacement if it is broken. The caller
// holds the lock. A producer that is broken is used until its replacement is due: its messages fail, and are tried again.
func (c *Client) usable() *producer {
	if c.current.broken && c.now().Sub(c.replaced) >= c.replaceDelay {
		c.replace()
	}
	return c.current
}

// replace replaces the current producer, which ends with its last answer. The options were valid before: after an error
// the next message tries again.
func (c *Client) replace() {
	library, err := kgo.NewClient(c.opts...)
	if err != nil {
		return
	}
	c.replaced = c.now()
	c.replaceDelay = min(max(2*c.replaceDelay, minReplaceDelay), maxReplaceDelay)
	old := c.current
	c.retired.Go(func() { closeAfterFlush(context.Background(), old) })
	c.current = &producer{Client: library}
}

// Ping asks a broker for an answer, for which it connects and logs in: then the first message is faster, and a wrong
// password is known before it. It returns at the latest when ctx or KAFKA_SEND_TIMEOUT ends.
func (c *Client) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SendTimeout)
	defer cancel()
	c.mu.Lock()
	p := c.current
	c.mu.Unlock()
	if p == nil {
		return ErrClosed
	}
	result := make(chan error, 1)
	// The call may outlast ctx, so the wait for it is bounded here.
	go func() { result <- p.Ping(ctx) }()
	select {
	case err := <-result:
		if err != nil && ctx.Err() != nil {
			return c.unanswered()
		}
		return err
	case <-ctx.Done():
		return c.unanswered()
	}
}

// Start pings a broker, logs the result, and waits for the end of ctx. Then it closes the client, which may use
// KAFKA_SEND_TIMEOUT for the sends in flight. It is for a manager and never fails: a broker that does not answer may come
// back.
func (c *Client) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("kafka")
	switch err := c.Ping(ctx); {
	case ctx.Err() != nil:
	case err != nil:
		logger.Error(errors.New(Reason(err)), "Kafka does not answer; messages are kept until it does", "brokers", c.cfg.Brokers)
	default:
		logger.Info("Kafka answers", "brokers", c.cfg.Brokers, "topic", c.cfg.Topic)
	}
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.SendTimeout)
	defer cancel()
	c.Close(last)
	return nil
}

// NeedLeaderElection returns false, so that each replica has a client: a wrong password is logged before the replica
// leads.
func (*Client) NeedLeaderElection() bool { return false }

// Close waits for the sends in flight, no longer than ctx, and ends the client. A message that was not acknowledged until
// then may have arrived or not. A second call returns when the producers have ended, or ctx has.
func (c *Client) Close(ctx context.Context) {
	// No new message can start after this: Publish finds no producer. The lock is released before the wait, which may
	// take long.
	c.mu.Lock()
	if last := c.current; last != nil {
		c.retired.Go(func() { closeAfterFlush(ctx, last) })
	}
	c.current = nil
	c.mu.Unlock()
	// A producer may take longer than ctx to close, so the wait for it is bounded here.
	ended := make(chan struct{})
	go func() { c.retired.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// closeAfterFlush closes a producer after its last answer, or when ctx ends.
func closeAfterFlush(ctx context.Context, p *producer) {
	_ = p.Flush(ctx) // fails only if ctx ends
	p.Close()
}

// connections is a hook of the library, which is called at every attempt to connect.
type connections Client

var _ kgo.HookBrokerConnect = (*connections)(nil)

// OnBrokerConnect records why the last attempt to connect, or to log in, failed.
func (c *connections) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connectErr = err
}
