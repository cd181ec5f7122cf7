package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bergctf/berg-operator/internal/config"
)

const topic = "challenge-status"

// timeout is how long a test waits for an expected result.
const timeout = 20 * time.Second

// slack is how much longer than a timeout a busy machine may take to return: without a bound it would take minutes, or
// never return.
const slack = 10 * time.Second

func broker(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(3, topic)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

func settingsFor(addresses ...string) config.Kafka {
	return config.Kafka{Brokers: addresses, Topic: topic, SendTimeout: 1500 * time.Millisecond}
}

func client(t *testing.T, cfg config.Kafka, more ...kgo.Opt) *Client {
	t.Helper()
	c, err := newClient(cfg, more...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

func message(n int) []byte { return fmt.Appendf(nil, `{"sequence":%d}`, n) }

func publish(t *testing.T, c *Client, key string, value []byte) {
	t.Helper()
	if err := c.Publish(t.Context(), key, value); err != nil {
		t.Fatalf("publish %s under %q: %v", value, key, err)
	}
}

// eventually publishes until it succeeds, as a caller with an outbox does.
func eventually(t *testing.T, c *Client, key string, value []byte) {
	t.Helper()
	end := time.Now().Add(timeout)
	for {
		err := c.Publish(t.Context(), key, value)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("publish %s under %q: still %v", value, key, err)
		}
		wait(t, 50*time.Millisecond)
	}
}

func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// arrived returns the values of each key in order, as soon as there are count of them.
func arrived(t *testing.T, count int, opts ...kgo.Opt) map[string][]string {
	t.Helper()
	consumer, err := kgo.NewClient(append([]kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	all, n := map[string][]string{}, 0
	take := func(fetches kgo.Fetches) {
		for _, r := range fetches.Records() {
			all[string(r.Key)] = append(all[string(r.Key)], string(r.Value))
			n++
			if r.Attrs.CompressionType() != 0 {
				t.Error("a message is compressed, which the consumers of the platform may not understand")
			}
		}
	}
	for n < count {
		fetches := consumer.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%d messages have arrived, want %d: %v", n, count, all)
		}
		take(fetches)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // one too many would be here
	defer cancel()
	take(consumer.PollFetches(short))
	if n != count {
		t.Fatalf("%d messages have arrived, want %d: %v", n, count, all)
	}
	return all
}

func at(cluster *kfake.Cluster) kgo.Opt { return kgo.SeedBrokers(cluster.ListenAddrs()...) }

// stall delays the answers to requests of a kind until the function that it returns is called.
func stall(cluster *kfake.Cluster, key kmsg.Key) (release func()) {
	gate := make(chan struct{})
	cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		cluster.SleepControl(func() { <-gate })
		return nil, nil, false
	})
	return sync.OnceFunc(func() { close(gate) })
}

func TestMessagesOfAKeyArriveInOrder(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	const keys, each = 7, 40
	var senders sync.WaitGroup
	for k := range keys {
		senders.Go(func() {
			for n := range each {
				if err := c.Publish(t.Context(), "user-"+strconv.Itoa(k), message(n)); err != nil {
					t.Errorf("message %d of key %d: %v", n, k, err)
				}
			}
		})
	}
	senders.Wait()
	all := arrived(t, keys*each, at(cluster))
	for key, values := range all {
		for n, value := range values {
			if value != string(message(n)) {
				t.Fatalf("%s: message %d is %s", key, n, value)
			}
		}
	}
	if len(c.sends) != 0 || len(c.delivered) != 0 {
		t.Errorf("%d sends and %d deliveries remain in memory", len(c.sends), len(c.delivered))
	}
}

// A key is on the partition that the previous operator, which used another library, has put it on: messages stay in order
// when the operator is replaced.
func TestKeysStayOnTheirPartition(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	// By the definition: FNV-1a of the key as a signed number, modulo, without its sign. As unsigned numbers the first
	// three would be on other partitions.
	for key, partition := range map[string]int32{"user-0": 1, "user-1": 0, "user-4": 0, "user-3": 2, "user-10": 1, "user-11": 0} {
		before := cluster.PartitionInfo(topic, partition).HighWatermark
		publish(t, c, key, message(0))
		if cluster.PartitionInfo(topic, partition).HighWatermark != before+1 {
			t.Errorf("%s is not on partition %d", key, partition)
		}
	}
}

func TestMessagesThatStopConsumersAreNotSent(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	for name, value := range map[string]string{
		"nothing": "", "null": "null", "array": "[]", "text": `"a"`, "two": "{}{}", "half": `{"a":`, "blank": "  ", "large": `{"a":"` + strings.Repeat("a", maxValue) + `"}`,
	} {
		if err := c.Publish(t.Context(), "key", []byte(value)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := c.Publish(t.Context(), "key", nil); err == nil {
		t.Error("nil: accepted")
	}
	if err := c.Publish(t.Context(), "", message(1)); err == nil {
		t.Error("no key: accepted")
	}
	publish(t, c, "key", []byte(" {\"a\":1}\n"))
	arrived(t, 1, at(cluster))
}

func TestABrokerThatDoesNotAnswerCostsTheTimeoutOnly(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	release := stall(cluster, kmsg.Produce)
	defer release()
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	for n := range 2 { // the second waits for the send of the first
		began := time.Now()
		err := c.Publish(t.Context(), "key", message(1))
		if took := time.Since(began); err == nil || took > c.cfg.SendTimeout+slack {
			t.Fatalf("attempt %d: %v after %s", n, err, took)
		}
		if why := Reason(err); why != "the broker does not acknowledge in time" {
			t.Errorf("attempt %d: reason %q", n, why)
		}
	}
	if err := c.Publish(t.Context(), "key", message(2)); err == nil {
		t.Error("another message of the key was sent before the first")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Publish(ctx, "key", message(1)); err == nil {
		t.Error("published although the caller has gone")
	}
	release()
	eventually(t, c, "key", message(1))
	eventually(t, c, "key", message(2))
	all := arrived(t, 2, at(cluster))
	if want := []string{string(message(1)), string(message(2))}; !slices.Equal(all["key"], want) {
		t.Errorf("arrived %v, want %v", all["key"], want)
	}
}

// Two callers, such as two challenges of the same problem and user.
func TestAKeyHasOneSendInFlight(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	release := stall(cluster, kmsg.Produce)
	defer release()
	cfg := settingsFor(cluster.ListenAddrs()...)
	cfg.SendTimeout = timeout
	c := client(t, cfg)
	var senders sync.WaitGroup
	for n := range 5 {
		senders.Go(func() {
			if err := c.Publish(t.Context(), "key", message(n)); err != nil {
				t.Errorf("message %d: %v", n, err)
			}
		})
	}
	wait(t, 100*time.Millisecond)
	c.mu.Lock()
	inFlight := c.current.BufferedProduceRecords()
	c.mu.Unlock()
	if inFlight != 1 {
		t.Errorf("%d messages of one key are in flight", inFlight)
	}
	release()
	senders.Wait()
	all := arrived(t, 5, at(cluster))["key"]
	slices.Sort(all)
	for n, value := range all {
		if value != string(message(n)) {
			t.Errorf("arrived: %v", all)
		}
	}
}

func TestAMessageAcknowledgedWithoutACallerIsNotSentAgain(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	release := stall(cluster, kmsg.Produce)
	defer release()
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	if err := c.Publish(t.Context(), "key", message(1)); err == nil {
		t.Fatal("published")
	}
	release()
	arrived(t, 1, at(cluster))
	publish(t, c, "key", message(1))
	publish(t, c, "key", message(2))
	all := arrived(t, 2, at(cluster))
	if want := []string{string(message(1)), string(message(2))}; !slices.Equal(all["key"], want) {
		t.Errorf("arrived %v, want %v", all["key"], want)
	}
}

// freePort returns a port without a listener.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func TestABrokerThatStartsLaterIsFound(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	address := "127.0.0.1:" + strconv.Itoa(port)
	c := client(t, settingsFor(address))
	began := time.Now()
	err := c.Publish(t.Context(), "key", message(1))
	if took := time.Since(began); err == nil || took > c.cfg.SendTimeout+slack {
		t.Fatalf("%v after %s", err, took)
	}
	if got, want := Reason(err), "broker "+address+": connection refused"; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
	cluster := broker(t, kfake.Ports(port))
	eventually(t, c, "key", message(1))
	arrived(t, 1, at(cluster))
}

func TestARestartedBrokerGetsAllMessagesInOrder(t *testing.T) {
	t.Parallel()
	port, dir := freePort(t), t.TempDir()
	start := func() *kfake.Cluster {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topic), kfake.Ports(port), kfake.DataDir(dir))
		if err != nil {
			t.Fatal(err)
		}
		return cluster
	}
	cluster := start()
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	publish(t, c, "key", message(0))
	cluster.Close()
	for range 3 {
		if err := c.Publish(t.Context(), "key", message(1)); err == nil {
			t.Fatal("published without a broker")
		}
	}
	cluster = start()
	defer cluster.Close()
	for n := 1; n < 5; n++ {
		eventually(t, c, "key", message(n))
	}
	for n, value := range arrived(t, 5, at(cluster))["key"] {
		if value != string(message(n)) {
			t.Errorf("message %d is %s", n, value)
		}
	}
}

// The broker refuses the producer ID once: then a client of the library fails permanently.
func TestABrokenClientIsReplaced(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: 1})
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	err := c.Publish(t.Context(), "key", message(1))
	if !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		t.Fatalf("published: %v", err)
	}
	if got, want := Reason(err), "the broker refuses: CLUSTER_AUTHORIZATION_FAILED: allow the user Write on the topic"; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
	eventually(t, c, "key", message(1))
	arrived(t, 1, at(cluster))
	c.retired.Wait() // until the replaced client has ended
}

// Replacements are expensive: there are few of them while the broker refuses.
func TestReplacementsBackOff(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	now := time.Now()
	c.now = func() time.Time { return now }
	seen := map[*producer]bool{}
	for range 40 { // half a second each
		if err := c.Publish(t.Context(), "key", message(1)); err == nil {
			t.Fatal("published")
		}
		seen[c.current] = true
		now = now.Add(500 * time.Millisecond)
	}
	// Immediately, and after 1, 2, 4, 8 and 10 seconds.
	if len(seen) < 4 || len(seen) > 6 {
		t.Errorf("%d clients in twenty seconds of refusals", len(seen))
	}
	fault.Remove()
	now = now.Add(maxReplaceDelay)
	eventually(t, c, "key", message(1))
	if c.replaceDelay != 0 {
		t.Error("the delay is not reset")
	}
}

func TestATopicThatIsCreatedAgainIsFound(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	publish(t, c, "key", message(1))
	admin, err := kgo.NewClient(at(cluster))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	topics := kadm.NewClient(admin)
	if _, err := topics.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if _, err := topics.CreateTopic(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	eventually(t, c, "key", message(2))
	if all := arrived(t, 1, at(cluster)); all["key"][0] != string(message(2)) {
		t.Errorf("arrived %v", all)
	}
}

// The broker writes the message and answers with an error: the library decides whether to send it again, and numbers
// messages so that the broker detects a repeat.
func TestAnErrorAfterTheMessageWasWrittenMakesNoSecondOne(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicasAfterAppend, Count: 1})
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	eventually(t, c, "key", message(1))
	arrived(t, 1, at(cluster))
}

// An error about one message does not replace the client.
func TestARefusedMessageBreaksNoClient(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.MessageTooLarge, Count: 1})
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	before := c.current
	if err := c.Publish(t.Context(), "key", message(1)); !errors.Is(err, kerr.MessageTooLarge) {
		t.Fatal(err)
	}
	publish(t, c, "key", message(2))
	if c.current != before {
		t.Error("the client was replaced")
	}
}

// A broker that answers, and never acknowledges a message, blocks the key of this message for a bounded time, also for a
// message of another challenge of the same player and problem.
func TestAStuckSendGivesItsKeyBack(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	release := stall(cluster, kmsg.Produce)
	defer release()
	cfg := settingsFor(cluster.ListenAddrs()...)
	cfg.SendTimeout = time.Second
	c := client(t, cfg, kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second))
	for end := time.Now().Add(timeout); ; {
		if err := c.Publish(t.Context(), "key", message(1)); err == nil {
			t.Fatal("published")
		}
		c.mu.Lock()
		free := len(c.sends) == 0
		c.mu.Unlock()
		if free {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the key is still blocked")
		}
	}
	release()
	eventually(t, c, "key", message(2))
}

// It is random which of several brokers an attempt used last: the reason must not depend on it.
func TestSeveralBrokersWithoutAnswerHaveOneReason(t *testing.T) {
	t.Parallel()
	addresses := []string{"127.0.0.1:" + strconv.Itoa(freePort(t)), "127.0.0.1:" + strconv.Itoa(freePort(t))}
	cfg := settingsFor(addresses...)
	cfg.SendTimeout = time.Second
	c := client(t, cfg)
	for n := range 8 {
		err := c.Publish(t.Context(), "key", message(1))
		if got, want := c.Reason(err), "a broker: connection refused"; got != want {
			t.Fatalf("attempt %d: %q, want %q", n, got, want)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	cfg := settingsFor("127.0.0.1:" + strconv.Itoa(freePort(t)))
	c := client(t, cfg)
	value := fmt.Appendf(nil, `{"a":%q}`, strings.Repeat("a", 400))
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	var senders sync.WaitGroup
	var full, failed sync.Map
	const unsent = 5000
	for n := range unsent {
		senders.Go(func() {
			err := c.Publish(t.Context(), "user-"+strconv.Itoa(n), value)
			failed.Store(n, err)
			if errors.Is(err, ErrFull) {
				full.Store(n, true)
			}
		})
	}
	senders.Wait()
	count := func(m *sync.Map) (n int) {
		m.Range(func(any, any) bool { n++; return true })
		return n
	}
	if count(&full) != unsent-maxSends || count(&failed) != unsent {
		t.Errorf("%d of %d were refused immediately, want %d", count(&full), count(&failed), unsent-maxSends)
	}
	if grown := int64(heap()) - int64(before); grown > 16<<20 {
		t.Errorf("the heap has grown by %d kB", grown>>10)
	}
}

func TestRememberedDeliveriesAreBounded(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	release := stall(cluster, kmsg.Produce)
	defer release()
	cfg := settingsFor(cluster.ListenAddrs()...)
	cfg.SendTimeout = time.Second
	c := client(t, cfg)
	c.maxSends = 3
	var senders sync.WaitGroup
	for n := range 4 {
		senders.Go(func() { _ = c.Publish(t.Context(), strconv.Itoa(n), message(n)) })
	}
	senders.Wait()
	release()
	arrived(t, 3, at(cluster))
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.delivered) > 3 {
		t.Errorf("%d are remembered", len(c.delivered))
	}
	c.remember("other", message(9))
	if len(c.delivered) != 3 || c.delivered["other"] == nil {
		t.Errorf("%d are remembered", len(c.delivered))
	}
}

func TestCloseWaitsForSendsInFlight(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	release := stall(cluster, kmsg.Produce)
	defer release()
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	sent := make(chan error, 1)
	go func() { sent <- c.Publish(t.Context(), "key", message(1)) }()
	for under := false; !under; {
		wait(t, time.Millisecond)
		c.mu.Lock()
		under = len(c.sends) > 0
		c.mu.Unlock()
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	go func() { <-short.Done(); release() }()
	long, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	c.Close(long)
	if err := <-sent; err != nil {
		t.Errorf("not sent: %v", err)
	}
	if err := c.Publish(t.Context(), "key", message(2)); !errors.Is(err, ErrClosed) {
		t.Errorf("published after Close: %v", err)
	}
	if err := c.Ping(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("pinged after Close: %v", err)
	}
	c.Close(long) // once more
}

func TestCloseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	cluster := broker(t)
	defer stall(cluster, kmsg.Produce)()
	c := client(t, settingsFor(cluster.ListenAddrs()...))
	_ = c.Publish(t.Context(), "key", message(1))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	c.Close(ctx)
	if took := time.Since(began); took > slack {
		t.Errorf("closing took %s", took)
	}
}

// A manager runs the client, with and without a broker that answers.
func TestStartDoesNotDependOnTheBroker(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"answers": broker(t).ListenAddrs()[0], "does not answer": "127.0.0.1:" + strconv.Itoa(freePort(t))} {
		t.Run(name, func(t *testing.T) {
			c := client(t, settingsFor(address))
			ctx, cancel := context.WithCancel(log.IntoContext(t.Context(), logr.Discard()))
			ended := make(chan error, 1)
			go func() { ended <- c.Start(ctx) }()
			select {
			case err := <-ended:
				t.Fatalf("ended: %v", err)
			case <-time.After(300 * time.Millisecond):
			}
			cancel()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(timeout):
				t.Error("does not end")
			}
			if err := c.Publish(t.Context(), "key", message(1)); !errors.Is(err, ErrClosed) {
				t.Errorf("published after Close: %v", err)
			}
		})
	}
}
