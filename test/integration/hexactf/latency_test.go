package hexactf

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/twmb/franz-go/pkg/kgo"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/broker"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// This measures the time from a change of state, which the operator writes into its message, until the platform's
// consumer has that message. Two bare clients send as many messages to the same broker, at the same moments, to the same
// consumer. One only sends. The other first writes into a custom resource, as any client must that may not lose a
// message. For the operator and the second client the time after that write is reported too: from its answer until the
// consumer has the message, which is when the broker acknowledges it.
var _ = Describe("A message to a real Kafka", Serial, func() {
	It("arrives as soon as that of a bare client that records its messages", func(ctx SpecContext) {
		const (
			every  = 400 * time.Millisecond // one challenge starts and ends; more than five a second would load two CPUs
			within = 50 * time.Millisecond  // p99, compared with that of the bare client
			states = 3                      // Creating, Running, Deleted
		)
		count, err := strconv.Atoi(os.Getenv("HEXACTF_LATENCY"))
		if err != nil {
			Skip("make hexactf-latency measures this: it needs Java, and a machine without other load")
		}
		kafka, err := broker.Start(ctx, broker.Options{Dir: GinkgoT().TempDir(), Topic: "challenge-status", Output: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(kafka.Stop()).To(Succeed()) })
		log, err := kafka.Follow(context.Background())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(log.Close)
		written := &statusWrites{at: map[string]time.Time{}}
		inprocess.Restart(map[string]string{"KAFKA_BROKERS": kafka.Plaintext}, written.wrap)
		bare, err := kgo.NewClient(kgo.SeedBrokers(kafka.Plaintext), kgo.DefaultProduceTopic("challenge-status"), kgo.ProducerLinger(0))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(bare.Close)

		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		const sends, records, operator, after = "only sends", "records and sends", "operator", ", after the write"
		send := func(key string, began time.Time) {
			value, err := json.Marshal(map[string]any{"timestamp": began.UTC(), "written": time.Now().UTC(), "filling": strings.Repeat("a", 200)})
			Expect(err).NotTo(HaveOccurred())
			Expect(bare.ProduceSync(ctx, &kgo.Record{Key: []byte(key), Value: value}).FirstErr()).To(Succeed())
		}
		recorded := hexactftest.Definition(ctx, ns, "recorded", hexactftest.OneComponent)
		record := func() {
			began := time.Now()
			Expect(apiserver.Client.Patch(ctx, recorded.DeepCopy(), apiserver.RawPatch(fmt.Sprintf(`{"metadata":{"annotations":{"message":%q}}}`, began)))).To(Succeed())
			send(records, began)
		}
		// The first messages open connections and warm up both programs.
		for range 20 {
			record()
			hexactftest.Reaches(ctx, hexactftest.Challenge(ctx, ns, "web"), hexactfv1.StateRunning)
		}
		warm := len(log.Messages())

		var all sync.WaitGroup
		bareClients := func() {
			for _, do := range []func(){record, func() { send(sends, time.Now()) }} {
				all.Go(func() {
					defer GinkgoRecover()
					do()
				})
			}
		}
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for range count {
			all.Go(func() {
				defer GinkgoRecover()
				c := hexactftest.Challenge(ctx, ns, "web")
				bareClients()
				hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
				bareClients()
				Expect(client.IgnoreNotFound(apiserver.Client.Delete(ctx, c))).To(Succeed())
				bareClients()
			})
			<-ticker.C
		}
		all.Wait()
		var delays map[string][]time.Duration // by sender, and by the state in the operator's message
		Expect(log.Await(ctx, func(all []broker.Message) error {
			delays = map[string][]time.Duration{}
			for _, m := range all[min(warm, len(all)):] {
				var received struct {
					Timestamp time.Time `json:"timestamp"`
					Written   time.Time `json:"written"`
					NewStatus string    `json:"newStatus"`
					Namespace string    `json:"namespace"`
					Name      string    `json:"name"`
					Sequence  int64     `json:"sequence"`
				}
				if err := json.Unmarshal([]byte(m.Value), &received); err != nil {
					return err
				}
				delay := m.Seen.Sub(received.Timestamp)
				if received.NewStatus == "" {
					delays[m.Key] = append(delays[m.Key], delay)
					delays[m.Key+after] = append(delays[m.Key+after], m.Seen.Sub(received.Written))
					continue
				}
				delays[operator] = append(delays[operator], delay)
				if at, known := written.of(received.Namespace, received.Name, received.Sequence); known {
					delays[operator+after] = append(delays[operator+after], m.Seen.Sub(at))
				}
				delays[received.NewStatus] = append(delays[received.NewStatus], delay)
			}
			for _, who := range []string{sends, records, operator, operator + after} {
				if n := len(delays[who]); n < states*count {
					return fmt.Errorf("%d messages of %s have arrived, want %d", n, who, states*count)
				}
			}
			return nil
		})).To(Succeed())
		at := func(some []time.Duration, p float64) time.Duration {
			slices.Sort(some)
			return some[int(math.Ceil(p*float64(len(some))))-1].Round(10 * time.Microsecond)
		}
		report := func(name string, some []time.Duration) {
			AddReportEntry(fmt.Sprintf("%s: %d messages, p50 %s, p90 %s, p99 %s, maximum %s", name, len(some), at(some, 0.5), at(some, 0.9), at(some, 0.99), at(some, 1)))
		}
		report("a client that only sends", delays[sends])
		report("a client that records and sends", delays[records])
		report("operator", delays[operator])
		report("a client that records and sends, from the answer to its write", delays[records+after])
		report("operator, from the answer to its write of the status", delays[operator+after])
		for _, state := range []hexactfv1.State{hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted} {
			report("operator, state "+string(state), delays[string(state)])
		}
		Expect(at(delays[operator], 0.99)).To(BeNumerically("<=", at(delays[records], 0.99)+within))
	}, SpecTimeout(limits.Scaled(15*time.Minute)))
})

// statusWrites are the times at which the API server answered the first write of a status that records a message.
type statusWrites struct {
	mu sync.Mutex
	at map[string]time.Time
}

var recordedSequence = regexp.MustCompile(`"sequence":(\d+)`)

func (w *statusWrites) wrap(next http.RoundTripper) http.RoundTripper {
	return transport.Through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		about, found := strings.CutSuffix(r.URL.Path, "/status")
		if !found || r.Method != http.MethodPatch {
			return next.RoundTrip(r)
		}
		body := transport.Body(r)
		response, err := next.RoundTrip(r)
		if err != nil || response.StatusCode != http.StatusOK {
			return response, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, sequence := range recordedSequence.FindAllStringSubmatch(body, -1) {
			if key := about + " " + sequence[1]; w.at[key].IsZero() {
				w.at[key] = time.Now()
			}
		}
		return response, nil
	})(next)
}

func (w *statusWrites) of(namespace, name string, sequence int64) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, known := w.at[fmt.Sprintf("/apis/%s/namespaces/%s/challenges/%s %d", hexactfv1.GroupVersion, namespace, name, sequence)]
	return at, known
}
