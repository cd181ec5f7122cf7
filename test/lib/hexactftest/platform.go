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

// topic is where the operator tells states by default.
const topic = "challenge-status"

// Platform stands for the rest of a HexaCTF installation: a broker, and a consumer that reads
// what is told there. The broker is a fake of one in this process: that of e2e is real.
type Platform struct {
	// Brokers is the value of KAFKA_BROKERS.
	Brokers string

	Consumer

	cluster *kfake.Cluster
	away    atomic.Bool
}

// Consumer is who reads what is told, at a fake broker or a real one. The zero value has read
// nothing. It is safe for concurrent use.
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
	// Seen is when the consumer had it.
	Seen time.Time `json:"-"`
	// Raw is all of it.
	Raw string `json:"-"`
}

// NewPlatform starts one, until close is called.
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
		Expect(p.Unfinished()).To(BeEmpty(), "repetitions that broke off")
	}
}

// Read takes one message in.
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

// Away has the broker hang up on whoever sends, until Back.
func (p *Platform) Away() { p.away.Store(true) }

// Back has it take messages again.
func (p *Platform) Back() { p.away.Store(false) }

// About returns the messages about a challenge, repetitions left out, and checks that they are
// under their key and in their order.
func (c *Consumer) About(challenge *hexactfv1.Challenge) []Message {
	GinkgoHelper()
	all := c.of(challenge.UID)
	told, err := once(all)
	Expect(err).NotTo(HaveOccurred(), "of %d messages about %s", len(all), challenge.Name)
	for _, m := range told {
		Expect(m.Key).To(Equal(m.User + "-" + m.ProblemID))
	}
	return told
}

// Unfinished names the challenges whose last message is not the latest about them: at the end
// the platform would believe in a state that was over.
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

// of returns all that was read about a challenge, as it came.
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

// once returns the messages about one challenge, in the order in which they came, without
// repetitions. It is as strict as "at least once, in order" allows: whoever takes over from an
// operator that was killed sends what it finds recorded once more, from any message on, each the
// same to the byte, one after the other, before anything new.
func once(all []Message) (told []Message, err error) {
	heard := map[int64]string{}
	var before, latest int64
	for n, m := range all {
		first, repeated := heard[m.Sequence]
		switch {
		case m.Sequence < 1:
			return nil, fmt.Errorf("message %d has no sequence: %s", n+1, m.Raw)
		case repeated && first != m.Raw:
			return nil, fmt.Errorf("message %d is %s, and was %s", n+1, m.Raw, first)
		case !repeated && m.Sequence < latest:
			return nil, fmt.Errorf("message %d comes after the one of sequence %d: %s", n+1, latest, m.Raw)
		}
		for skipped := before + 1; skipped < m.Sequence; skipped++ {
			if _, known := heard[skipped]; known {
				return nil, fmt.Errorf("message %d comes in the middle of a repetition, which got to %d of %d: %s", n+1, before, latest, m.Raw)
			}
		}
		if !repeated {
			heard[m.Sequence] = m.Raw
			told = append(told, m)
		}
		before, latest = m.Sequence, max(latest, m.Sequence)
	}
	return told, nil
}

// States returns the states that were told about a challenge.
func (p *Platform) States(c *hexactfv1.Challenge) []hexactfv1.State {
	GinkgoHelper()
	var all []hexactfv1.State
	for _, m := range p.About(c) {
		all = append(all, m.NewStatus)
	}
	return all
}

// Hears waits until exactly these states were told about a challenge.
func (p *Platform) Hears(c *hexactfv1.Challenge, states ...hexactfv1.State) {
	GinkgoHelper()
	Eventually(func() []hexactfv1.State { return p.States(c) }).Should(Equal(states))
}
