package hexactftest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
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
	}
}

// Read takes one message in.
func (c *Consumer) Read(key string, value []byte, seen time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := Message{Key: key, Seen: seen}
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
// in their order and under their key.
func (c *Consumer) About(challenge *hexactfv1.Challenge) []Message {
	GinkgoHelper()
	c.mu.Lock()
	defer c.mu.Unlock()
	Expect(c.broken).To(BeEmpty(), "messages that no consumer understands")
	var all []Message
	for _, m := range c.messages {
		if m.UID != challenge.UID || slices.ContainsFunc(all, func(o Message) bool { return o.Sequence == m.Sequence }) {
			continue
		}
		Expect(m.Key).To(Equal(m.User + "-" + m.ProblemID))
		if len(all) > 0 {
			Expect(m.Sequence).To(BeNumerically(">", all[len(all)-1].Sequence), "the order of messages")
		}
		all = append(all, m)
	}
	return all
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
