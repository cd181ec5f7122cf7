package hexactftest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"k8s.io/apimachinery/pkg/types"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
)

// topic is the default topic of the operator.
const topic = "challenge-status"

// Platform stands for the rest of a HexaCTF installation: a broker, and a consumer of its messages. The broker is a fake in
// this process; the e2e specs have a real one.
type Platform struct {
	// Brokers is the value of KAFKA_BROKERS.
	Brokers string

	Consumer

	cluster *kfake.Cluster
	away    atomic.Bool
}

// Consumer reads the messages of a fake or a real broker. The zero value has read nothing. It is safe for concurrent use.
type Consumer struct {
	mu       sync.Mutex
	messages []Message
	broken   []string
}

// Message is what the consumer reads.
type Message struct {
	Key       string          `json:"-"`
	User      string          `json:"user"`
	ProblemID string          `json:"problemId"`
	NewStatus hexactfv1.State `json:"newStatus"`
	Timestamp time.Time       `json:"timestamp"`
	Endpoint  string          `json:"endpoint"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	UID       types.UID       `json:"uid"`
	Sequence  int64           `json:"sequence"`
	// Seen is when the consumer read it.
	Seen time.Time `json:"-"`
	// Raw is the whole value.
	Raw string `json:"-"`
}

// NewPlatform starts a broker and its consumer, until stop is called.
func NewPlatform() (_ *Platform, stop func()) {
	GinkgoHelper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topic))
	Expect(err).NotTo(HaveOccurred())
	p := &Platform{Brokers: strings.Join(cluster.ListenAddrs(), ","), cluster: cluster}
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if p.away.Load() {
			return nil, errors.New("away"), true // hangs up
		}
		return nil, nil, false
	})
	consumer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			for _, r := range consumer.PollFetches(ctx).Records() {
				p.Read(string(r.Key), r.Value, time.Now())
			}
		}
	}()
	return p, func() {
		cancel()
		<-ended
		consumer.Close()
		cluster.Close()
		Expect(p.Unfinished()).To(BeEmpty(), "incomplete repetitions")
	}
}

// Read records one message.
func (c *Consumer) Read(key string, value []byte, seen time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := Message{Key: key, Seen: seen, Raw: string(value)}
	if err := json.Unmarshal(value, &m); err != nil || m.User == "" || m.ProblemID == "" || m.NewStatus == "" || m.Timestamp.IsZero() {
		c.broken = append(c.broken, string(value))
		return
	}
	c.messages = append(c.messages, m)
}

// Away makes the broker close the connection of every sender, until Back.
func (p *Platform) Away() { p.away.Store(true) }

// Back makes it accept messages again.
func (p *Platform) Back() { p.away.Store(false) }

// About returns the messages about a challenge without repetitions, and checks their key and their order.
func (c *Consumer) About(challenge *hexactfv1.Challenge) []Message {
	GinkgoHelper()
	all := c.of(challenge.UID)
	received, err := withoutRepeats(all)
	Expect(err).NotTo(HaveOccurred(), "of %d messages about %s", len(all), challenge.Name)
	for _, m := range received {
		Expect(m.Key).To(Equal(m.User + "-" + m.ProblemID))
	}
	return received
}

// Unfinished names the challenges whose last message is not the latest one about them: the platform would keep a state
// that is out of date.
func (c *Consumer) Unfinished() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, latest := map[types.UID]Message{}, map[types.UID]int64{}
	for _, m := range c.messages {
		last[m.UID], latest[m.UID] = m, max(latest[m.UID], m.Sequence)
	}
	for uid, m := range last {
		if m.Sequence < latest[uid] {
			names = append(names, fmt.Sprintf("%s ends with %s", m.Name, m.Raw))
		}
	}
	return names
}

// of returns all messages about a challenge, as they arrived.
func (c *Consumer) of(uid types.UID) (all []Message) {
	GinkgoHelper()
	c.mu.Lock()
	defer c.mu.Unlock()
	Expect(c.broken).To(BeEmpty(), "messages that no consumer understands")
	for _, m := range c.messages {
		if m.UID == uid {
			all = append(all, m)
		}
	}
	return all
}

// withoutRepeats returns the messages about one challenge, in the order in which they arrived, without repetitions. It is as
// strict as "at least once, in order" allows: the successor of an operator that was killed sends the recorded messages
// once more, from any message on, with the same bytes, in order, before any new message.
func withoutRepeats(all []Message) (received []Message, err error) {
	seen := map[int64]string{}
	var before, latest int64
	for n, m := range all {
		first, repeated := seen[m.Sequence]
		switch {
		case m.Sequence < 1:
			return nil, fmt.Errorf("message %d has no sequence: %s", n+1, m.Raw)
		case repeated && first != m.Raw:
			return nil, fmt.Errorf("message %d is %s, and was %s", n+1, m.Raw, first)
		case !repeated && m.Sequence < latest:
			return nil, fmt.Errorf("message %d comes after the one of sequence %d: %s", n+1, latest, m.Raw)
		}
		for skipped := before + 1; skipped < m.Sequence; skipped++ {
			if _, known := seen[skipped]; known {
				return nil, fmt.Errorf("message %d comes in the middle of a repetition, which got to %d of %d: %s", n+1, before, latest, m.Raw)
			}
		}
		if !repeated {
			seen[m.Sequence] = m.Raw
			received = append(received, m)
		}
		before, latest = m.Sequence, max(latest, m.Sequence)
	}
	return received, nil
}

// States returns the states of the messages about a challenge.
func (p *Platform) States(c *hexactfv1.Challenge) []hexactfv1.State {
	GinkgoHelper()
	var all []hexactfv1.State
	for _, m := range p.About(c) {
		all = append(all, m.NewStatus)
	}
	return all
}

// Receives waits until there are messages about exactly these states of a challenge.
func (p *Platform) Receives(c *hexactfv1.Challenge, states ...hexactfv1.State) {
	GinkgoHelper()
	Eventually(func() []hexactfv1.State { return p.States(c) }).Should(Equal(states))
}
