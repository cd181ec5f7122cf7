package kafka

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bergctf/berg-operator/internal/config"
)

const (
	// maxKept is how many messages are kept in memory: those whose send is under way, and as
	// many again of which nobody has asked yet whether they arrived. At some hundred bytes
	// each that is a few megabytes.
	maxKept = 4096
	// maxValue bounds one message, far below the 1 MB that brokers take by default.
	maxValue = 64 << 10

	dialTimeout = 5 * time.Second
	// answerTimeout is how long a broker may think about a request. A connection that leads
	// nowhere is given up after twice that.
	answerTimeout = 5 * time.Second
	// idleTimeout is below the ten minutes after which brokers close a connection: to open
	// one costs a message a third of a second.
	idleTimeout = 8 * time.Minute

	// Between two replacements of a client that is spoilt.
	minReplacePause, maxReplacePause = time.Second, 10 * time.Second
	// stuckAfter is how long a broker may answer and acknowledge nothing before the client is
	// taken for stuck.
	stuckAfter = 30 * time.Second
	// pingPause is the least time between two pings by which that is found out.
	pingPause = 5 * time.Second
)

// Errors that are not the broker's.
var (
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the sender has ended")
	// ErrFull is returned where too many messages wait for the broker already.
	ErrFull = errors.New("too many messages wait for the broker already")
)

// An unansweredError is returned when the broker has not acknowledged in time.
type unansweredError struct {
	last error // of the last attempt to connect; nil where that succeeded
}

func (e *unansweredError) Error() string {
	if e.last == nil {
		return "the broker has not acknowledged in time"
	}
	return fmt.Sprintf("the broker has not acknowledged in time: %v", e.last)
}

func (e *unansweredError) Unwrap() error { return e.last }

// Client sends messages to one topic. It is safe for concurrent use.
type Client struct {
	cfg  config.Kafka
	opts []kgo.Opt
	now  func() time.Time
	kept int // limit of sends, and of delivered

	mu        sync.Mutex
	current   *producer              // nil after Close
	retired   map[*producer]struct{} // until their last message is answered
	sends     map[string]*send       // under way, by key
	delivered map[string][]byte      // arrived when nobody waited any more, by key
	unhealthy error                  // of the last attempt to connect; nil once one succeeds
	replaced  time.Time              // when current took the place of one that was spoilt
	pause     time.Duration          // before the next replacement
	pinging   bool
	pinged    time.Time // when the last ping began
	answering time.Time // since when pings succeed and nothing is acknowledged; zero: not so
}

// producer is a client of the library, with what is under way in it.
type producer struct {
	*kgo.Client
	inFlight int
	spoilt   bool      // has failed in a way that it may not recover from
	since    time.Time // when another one took its place
}

// send is one message under way.
type send struct {
	value   []byte
	waiters int
	done    chan struct{} // closed once err is known
	err     error
}

// New returns a client of the brokers in cfg. It reads the files that cfg names, and returns
// an error that names the setting where one is not as it must be. It connects to nobody.
func New(cfg config.Kafka) (*Client, error) { return newClient(cfg) }

func newClient(cfg config.Kafka, more ...kgo.Opt) (*Client, error) {
	if !cfg.Enabled() {
		return nil, errors.New("KAFKA_BROKERS: must name a broker")
	}
	if err := checkCredentials(cfg); err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, now: time.Now, kept: maxKept,
		retired: map[*producer]struct{}{}, sends: map[string]*send{}, delivered: map[string][]byte{},
	}
	c.opts = append(credentials(cfg),
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.ClientID("berg-operator"),
		kgo.DefaultProduceTopic(cfg.Topic),
		// A broker that lost its disk, or is new, makes the topic if it is told to make
		// topics at all.
		kgo.AllowAutoTopicCreation(),
		// The consumers of this topic need an extra library for each compression.
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		// The same partition for a key as by the operator of which the topic may hold messages.
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(kgo.SaramaCompatHasher(fnv32a))),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(maxKept),
		// Shorter than our own wait, so that a record of which the broker knows nothing is
		// given up, with the reason.
		kgo.RecordDeliveryTimeout(max(time.Second, cfg.SendTimeout*4/5)),
		kgo.ProduceRequestTimeout(answerTimeout),
		kgo.RequestTimeoutOverhead(answerTimeout),
		kgo.ConnIdleTimeout(idleTimeout),
		// A retry waits for metadata, which are asked for no more often than this.
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.WithHooks((*connections)(c)),
		kgo.DisableClientMetrics(),
	)
	c.opts = append(c.opts, more...)
	library, err := kgo.NewClient(c.opts...)
	if err != nil {
		return nil, fmt.Errorf("make a client of Kafka: %w", err)
	}
	c.current = &producer{Client: library}
	return c, nil
}

func fnv32a(key []byte) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write(key) // never fails
	return hash.Sum32()
}

// Publish sends value, one JSON object, under key and returns when the broker has acknowledged
// it. Otherwise it returns why not, at the end of ctx or of KAFKA_SEND_TIMEOUT at the latest;
// the message may arrive all the same. Reason makes the error fit for a condition.
func (c *Client) Publish(ctx context.Context, key string, value []byte) error {
	if err := check(key, value); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SendTimeout)
	defer cancel()
	for {
		s, same, err := c.admit(key, value) //nolint:contextcheck // a send outlives who waits for it
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
				return c.leave(s) //nolint:contextcheck // the ping goes on when nobody waits
			}
			// Who waits for the message before its own may be the only one who still does.
			c.suspect() //nolint:contextcheck // the ping goes on when nobody waits
			return c.unanswered()
		}
	}
}

// check refuses what consumers stop at. To Kafka a value of nothing is a request to forget the
// key, and consumers of JSON fail on it for ever.
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

// admit returns the send of this value, and true. While another value of the same key is under
// way it returns that one and false.
func (c *Client) admit(key string, value []byte) (s *send, same bool, err error) {
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
	if len(c.sends) >= c.kept {
		c.mu.Unlock()
		return nil, false, ErrFull
	}
	s = &send{value: bytes.Clone(value), waiters: 1, done: make(chan struct{})}
	c.sends[key] = s
	p := c.usable()
	p.inFlight++
	c.mu.Unlock()

	// Not with the caller's context: what may have reached the broker cannot be called back,
	// and what has not is given up by the delivery timeout.
	p.TryProduce(context.Background(), &kgo.Record{Key: []byte(key), Value: s.value}, func(_ *kgo.Record, err error) {
		c.answered(p, key, s, err)
	})
	return s, true, nil
}

// closed is a channel that is.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// answered takes down what became of a send.
func (c *Client) answered(p *producer, key string, s *send, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, kgo.ErrRecordTimeout) {
		err = &unansweredError{cmp.Or(lastOf(err), c.unhealthy)}
	}
	s.err = err
	close(s.done)
	delete(c.sends, key)
	switch {
	case err == nil:
		c.pause, c.answering = 0, time.Time{}
		if s.waiters == 0 {
			c.remember(key, s.value)
		}
	case spoils(err):
		p.spoilt = true
	}
	p.inFlight--
	if _, retired := c.retired[p]; retired && p.inFlight == 0 {
		delete(c.retired, p)
		go p.Close()
	}
}

// lastOf returns what the library met last before a record's time was over, nil if it does not
// say.
func lastOf(timeout error) error {
	if both, ok := timeout.(interface{ Unwrap() []error }); ok {
		all := both.Unwrap()
		return all[len(all)-1]
	}
	return nil
}

// remember keeps a value that arrived when nobody waited any more. Where there are too many,
// any other is forgotten: it is sent once more.
func (c *Client) remember(key string, value []byte) {
	if len(c.delivered) >= c.kept {
		for other := range c.delivered {
			delete(c.delivered, other)
			break
		}
	}
	c.delivered[key] = value
}

// leave ends the wait for a send, which stays under way.
func (c *Client) leave(s *send) error {
	c.mu.Lock()
	select {
	case <-s.done: // meanwhile
		c.mu.Unlock()
		return s.err
	default:
	}
	s.waiters--
	c.mu.Unlock()
	c.suspect()
	return c.unanswered()
}

func (c *Client) unanswered() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &unansweredError{c.unhealthy}
}

// spoils reports whether a client of the library may fail for ever after err. The replacement
// of one that would not costs a third of a second.
func spoils(err error) bool {
	switch {
	case errors.As(err, new(*unansweredError)), errors.Is(err, kgo.ErrMaxBuffered), errors.Is(err, kgo.ErrClientClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge), errors.Is(err, kerr.InvalidRecord):
		return false
	}
	return true
}

// usable returns the producer for the next message: the current one, or another in its place
// if that is spoilt. The caller holds the lock.
func (c *Client) usable() *producer {
	if c.current.spoilt && c.now().Sub(c.replaced) >= c.pause {
		c.replace()
	}
	return c.current
}

// replace puts a new producer in place of the current one, which ends with its last answer.
// It reports whether there is one: the options were good before, and the next message tries
// again.
func (c *Client) replace() bool {
	library, err := kgo.NewClient(c.opts...)
	if err != nil {
		return false
	}
	c.replaced = c.now()
	c.pause = min(max(2*c.pause, minReplacePause), maxReplacePause)
	c.answering = time.Time{}
	if old := c.current; old.inFlight == 0 {
		go old.Close()
	} else {
		old.since = c.replaced
		c.retired[old] = struct{}{}
	}
	c.current = &producer{Client: library}
	return true
}

// suspect finds out whether the broker answers although it has not acknowledged. If that has
// been so for long, the current producer is taken for stuck: what is under way in it fails,
// and another takes its place. So does what is under way in one that was retired long ago: its
// keys would be blocked for as long as it hangs.
func (c *Client) suspect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if c.current == nil || c.pinging || now.Sub(c.pinged) < pingPause {
		return
	}
	c.pinging, c.pinged = true, now
	p := c.current
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), pingPause)
		defer cancel()
		err := p.Ping(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pinging = false
		if err == nil {
			c.buryRetired()
		}
		switch {
		case c.current != p || p.inFlight == 0 || err != nil:
			c.answering = time.Time{}
		case c.answering.IsZero():
			c.answering = c.now()
		case c.now().Sub(c.answering) >= stuckAfter:
			if c.replace() {
				delete(c.retired, p) // since this is its end
				go p.Close()
			}
		}
	}()
}

// buryRetired ends the producers that have been retired for so long that their messages will not be
// answered any more, by a broker that answers others. The caller holds the lock.
func (c *Client) buryRetired() {
	for p := range c.retired {
		if c.now().Sub(p.since) >= stuckAfter {
			delete(c.retired, p) // since this is its end
			go p.Close()
		}
	}
}

// Ping asks a broker whether it is there, and so connects and logs in: the first message is
// faster then, and a wrong password is known before it. It returns at the end of ctx or of
// KAFKA_SEND_TIMEOUT at the latest.
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

// Start asks a broker whether it is there, says what it found out, and waits for the end of
// ctx: then it closes the client, which sends what is under way for as long as one attempt
// takes. It is for a manager, and fails never: a broker that is away comes back.
func (c *Client) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithName("kafka")
	switch err := c.Ping(ctx); {
	case ctx.Err() != nil:
	case err != nil:
		logger.Error(errors.New(Reason(err)), "no message can be sent to Kafka for now, they are kept until it is there", "brokers", c.cfg.Brokers)
	default:
		logger.Info("Kafka answers", "brokers", c.cfg.Brokers, "topic", c.cfg.Topic)
	}
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.SendTimeout)
	defer cancel()
	c.Close(last)
	return nil
}

// NeedLeaderElection tells a manager that each replica has a client: a wrong password is told
// before the replica leads.
func (*Client) NeedLeaderElection() bool { return false }

// Close waits for what is under way, no longer than ctx, and ends the client. What was not
// acknowledged until then may have arrived or not.
func (c *Client) Close(ctx context.Context) {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.retired))
	if c.current != nil {
		all = append(all, c.current)
	}
	clear(c.retired)
	c.current = nil
	c.mu.Unlock()
	var ending sync.WaitGroup
	for _, p := range all {
		ending.Go(func() {
			_ = p.Flush(ctx) // fails with ctx alone
			p.Close()
		})
	}
	ended := make(chan struct{})
	go func() { ending.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// connections are told of every attempt to connect.
type connections Client

var _ kgo.HookBrokerConnect = (*connections)(nil)

// OnBrokerConnect remembers why the last attempt to connect, or to log in, failed.
func (c *connections) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unhealthy = err
}
