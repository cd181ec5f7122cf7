package hexactf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
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
)

// From the moment at which the operator sees that a challenge has come to another state, which
// its message tells, until the platform's consumer has that message: beside a bare client that
// sends as many messages to the same broker in the same run, seen by the same consumer.
var _ = Describe("A message to a real Kafka", Serial, func() {
	It("arrives as soon as that of a bare client, but for the write of the status", func(ctx SpecContext) {
		const (
			every  = 100 * time.Millisecond // a challenge
			within = 50 * time.Millisecond  // p99 beside that of the bare client
			states = 3                      // Creating, Running, Deleted
		)
		count, err := strconv.Atoi(os.Getenv("HEXACTF_LATENCY"))
		if err != nil {
			Skip("make hexactf-latency measures this: it takes Java, and a machine that does nothing else")
		}
		kafka, err := broker.Start(ctx, broker.Options{Dir: GinkgoT().TempDir(), Topic: "challenge-status", Output: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(kafka.Stop()).To(Succeed()) })
		log, err := kafka.Follow(context.Background())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(log.Close)
		inprocess.Restart(map[string]string{"KAFKA_BROKERS": kafka.Plaintext}, nil)
		bare, err := kgo.NewClient(kgo.SeedBrokers(kafka.Plaintext), kgo.DefaultProduceTopic("challenge-status"), kgo.ProducerLinger(0))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(bare.Close)

		ns := hexactftest.Namespace(ctx)
		hexactftest.Definition(ctx, ns, "web", hexactftest.OneComponent)
		const key = "bare"
		send := func() {
			value, err := json.Marshal(map[string]string{"timestamp": time.Now().UTC().Format(time.RFC3339Nano), "filling": strings.Repeat("a", 200)})
			Expect(err).NotTo(HaveOccurred())
			Expect(bare.ProduceSync(ctx, &kgo.Record{Key: []byte(key), Value: value}).FirstErr()).To(Succeed())
		}
		send() // the first one connects, as the operator has
		hexactftest.Reaches(ctx, hexactftest.Challenge(ctx, ns, "web"), hexactfv1.StateRunning)
		warm := len(log.Messages())

		var both sync.WaitGroup
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for range count {
			both.Go(func() {
				defer GinkgoRecover()
				for range states {
					send()
				}
			})
			both.Go(func() {
				defer GinkgoRecover()
				c := hexactftest.Challenge(ctx, ns, "web")
				hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
				Expect(client.IgnoreNotFound(apiserver.Client.Delete(ctx, c))).To(Succeed())
			})
			<-ticker.C
		}
		both.Wait()
		var delays map[bool][]time.Duration // whether they are the bare client's
		Expect(log.Await(ctx, func(all []broker.Message) error {
			delays = map[bool][]time.Duration{}
			for _, m := range all[min(warm, len(all)):] {
				var told struct {
					Timestamp time.Time `json:"timestamp"`
				}
				if err := json.Unmarshal([]byte(m.Value), &told); err != nil {
					return err
				}
				delays[m.Key == key] = append(delays[m.Key == key], m.Seen.Sub(told.Timestamp))
			}
			for whose, some := range delays {
				if len(some) < states*count {
					return fmt.Errorf("%d messages have arrived, want %d (bare: %v)", len(some), states*count, whose)
				}
			}
			if len(delays) < 2 {
				return errors.New("somebody has sent nothing")
			}
			return nil
		})).To(Succeed())
		at := func(some []time.Duration, p float64) time.Duration {
			slices.Sort(some)
			return some[int(math.Ceil(p*float64(len(some))))-1].Round(10 * time.Microsecond)
		}
		report := func(name string, some []time.Duration) {
			AddReportEntry(fmt.Sprintf("%s: %d messages, p50 %s, p90 %s, p99 %s, longest %s", name, len(some), at(some, 0.5), at(some, 0.9), at(some, 0.99), at(some, 1)))
		}
		report("bare client", delays[true])
		report("operator", delays[false])
		Expect(at(delays[false], 0.99)).To(BeNumerically("<=", at(delays[true], 0.99)+within))
	}, SpecTimeout(15*time.Minute))
})
