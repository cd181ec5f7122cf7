package kafka

import (
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/bergctf/berg-operator/test/lib/broker"
)

// This compares the sender with a bare client of the library, alternately and at the same rate, so that the load of the
// machine is the same: the additional work of the sender must not be noticeable. The figures are always reported. They
// must be met only where make measures them, on a machine without other load.
func TestLatencyComparedWithABareClient(t *testing.T) {
	const (
		rounds     = 400
		perRound   = 4                     // concurrently, of different keys
		every      = 10 * time.Millisecond // between rounds
		within     = 50 * time.Millisecond
		percentile = 0.99
	)
	b := start(t, broker.Options{Topic: topic})
	c := client(t, at(b.Plaintext))
	bare, err := kgo.NewClient(kgo.SeedBrokers(b.Plaintext), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	ways := []struct {
		name string
		send func(key, value string) error
		took []time.Duration
	}{
		{name: "bare", send: func(key, value string) error {
			return bare.ProduceSync(t.Context(), &kgo.Record{Key: []byte(key), Value: []byte(value)}).FirstErr()
		}},
		{name: "ours", send: func(key, value string) error { return c.Publish(t.Context(), key, []byte(value)) }},
	}
	for i := range ways { // connections, and the producer's ID
		must(t, ways[i].send("first", message(0)))
	}
	for n := range rounds {
		way := &ways[n%len(ways)]
		var mu sync.Mutex
		var senders sync.WaitGroup
		for k := range perRound {
			senders.Go(func() {
				began := time.Now()
				if err := way.send(way.name+strconv.Itoa(k), message(n)); err != nil {
					t.Errorf("%s: %v", way.name, err)
				}
				mu.Lock()
				defer mu.Unlock()
				way.took = append(way.took, time.Since(began))
			})
		}
		senders.Wait()
		select {
		case <-t.Context().Done():
		case <-time.After(every):
		}
	}
	quantile := func(took []time.Duration, p float64) time.Duration {
		slices.Sort(took)
		return took[int(math.Ceil(p*float64(len(took))))-1]
	}
	for _, way := range ways {
		t.Logf("%s: %d sends, p50 %s, p99 %s, maximum %s", way.name, len(way.took),
			quantile(way.took, 0.5).Round(time.Microsecond), quantile(way.took, percentile).Round(time.Microsecond), quantile(way.took, 1).Round(time.Microsecond))
	}
	if bare, ours := quantile(ways[0].took, percentile), quantile(ways[1].took, percentile); ours > bare+within && os.Getenv("HEXACTF_TARGETS") == "1" {
		t.Errorf("p99 is %s, more than %s above the %s of a bare client", ours, within, bare)
	}
}
