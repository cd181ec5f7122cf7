package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Message is one that a broker has.
type Message struct {
	Partition  int32
	Offset     int64
	Key, Value string
	// Time is the producer's timestamp, Seen when the Log read it.
	Time, Seen time.Time
}

// Log has all messages that arrive at the topic, read by a consumer that is independent of the sender. It is safe for
// concurrent use.
type Log struct {
	b *Broker

	mu       sync.Mutex
	messages []Message
	next     map[int32]int64 // offsets of the messages to come, by partition, since the last join
	more     chan struct{}   // closed when there are more, and replaced

	end func()
}

// Follow returns the topic's log from its beginning, until ctx ends or Close is called. It continues when the broker is
// restarted.
func (b *Broker) Follow(ctx context.Context) (*Log, error) {
	l := &Log{b: b, more: make(chan struct{})}
	return l, l.join(ctx)
}

// Rejoin follows the topic from its beginning again after the broker has lost its disk, and keeps the messages read before.
func (l *Log) Rejoin(ctx context.Context) error {
	l.Close()
	return l.join(ctx)
}

func (l *Log) join(ctx context.Context) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(l.b.Plaintext),
		kgo.ConsumeTopics(l.b.opts.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(pause),
		kgo.RetryBackoffFn(func(int) time.Duration { return pause }),
		kgo.FetchMaxWait(probe),
	)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	l.next = map[int32]int64{}
	l.mu.Unlock()
	ended := make(chan struct{})
	l.end = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		defer client.Close()
		for ctx.Err() == nil {
			l.add(client.PollFetches(ctx).Records())
		}
	}()
	return nil
}

func (l *Log) add(records []*kgo.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		l.next[r.Partition] = r.Offset + 1
		l.messages = append(l.messages, Message{
			Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Value: string(r.Value), Time: r.Timestamp, Seen: time.Now(),
		})
	}
	if len(records) > 0 {
		close(l.more)
		l.more = make(chan struct{})
	}
}

// Close ends following. The messages stay.
func (l *Log) Close() { l.end() }

// Messages returns what has arrived, in the order of each partition.
func (l *Log) Messages() []Message {
	all, _ := l.now()
	return all
}

func (l *Log) now() ([]Message, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Message(nil), l.messages...), l.more
}

// CatchUp waits until all messages are read that the broker, which must run, has now.
func (l *Log) CatchUp(ctx context.Context) error {
	var ends kadm.ListedOffsets
	err := l.b.as(func(admin *kadm.Client) (err error) {
		if ends, err = admin.ListEndOffsets(ctx, l.b.opts.Topic); err == nil {
			err = ends.Error()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("ask for the end of the topic: %w", err)
	}
	return l.Await(ctx, func([]Message) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for partition, end := range ends[l.b.opts.Topic] {
			if at := l.next[partition]; at < end.Offset {
				return fmt.Errorf("partition %d was read up to %d of %d", partition, at, end.Offset)
			}
		}
		return nil
	})
}

// Of returns the values of a key, in order.
func (l *Log) Of(key string) []string {
	var values []string
	for _, m := range l.Messages() {
		if m.Key == key {
			values = append(values, m.Value)
		}
	}
	return values
}

// Await waits until missing returns nil for the messages. At the end of ctx it returns the last error of missing.
func (l *Log) Await(ctx context.Context, missing func([]Message) error) error {
	for {
		all, more := l.now()
		err := missing(all)
		if err == nil {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("%w; %d messages have arrived", err, len(all))
		}
	}
}
