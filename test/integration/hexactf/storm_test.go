package hexactf

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/broker"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// brokerControl stops and restarts a broker, and reads what arrives there.
type brokerControl struct {
	brokers    string
	away, back func()
	// pause stops the answers of the broker, until back.
	pause func()
	// loseDisk removes the disk of a running broker while no client sends. The consumer has read all messages
	// acknowledged before. Nil: the broker has no disk.
	loseDisk func()
	about    func(*hexactfv1.Challenge) []hexactftest.Message
	// unfinished are the challenges whose last message is not the latest about them.
	unfinished func() []string
}

// fakeBroker controls the fake broker of this suite.
func fakeBroker() brokerControl {
	return brokerControl{brokers: platform.Brokers, away: platform.Away, back: platform.Back, pause: platform.Away, about: platform.About, unfinished: platform.Unfinished}
}

// brokerOfSpec controls the broker of a spec: a real Kafka if HEXACTF_KAFKA is set, as make does.
func brokerOfSpec(ctx context.Context, random *rand.Rand) brokerControl {
	GinkgoHelper()
	if os.Getenv("HEXACTF_KAFKA") != "" {
		return realBroker(ctx, random)
	}
	return fakeBroker()
}

// realBroker controls a real Kafka, which is sometimes paused and sometimes killed.
func realBroker(ctx context.Context, random *rand.Rand) brokerControl {
	GinkgoHelper()
	kafka, err := broker.Start(ctx, broker.Options{Dir: GinkgoT().TempDir(), Topic: "challenge-status", Output: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(kafka.Stop()).To(Succeed()) })
	log, err := kafka.Follow(context.Background())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(log.Close)
	var repair func() error
	pause := func() {
		if repair == nil {
			Expect(kafka.Pause()).To(Succeed())
			repair = kafka.Resume
		}
	}
	consumer := func() *hexactftest.Consumer {
		all := &hexactftest.Consumer{}
		for _, m := range log.Messages() {
			all.Read(m.Key, []byte(m.Value), m.Seen)
		}
		return all
	}
	return brokerControl{
		brokers: kafka.Plaintext,
		pause:   pause,
		away: func() {
			if random.IntN(2) == 0 {
				pause()
			} else if repair == nil {
				Expect(kafka.Kill()).To(Succeed())
				repair = func() error { return kafka.Restart(context.Background()) }
			}
		},
		loseDisk: func() {
			Expect(log.CatchUp(ctx)).To(Succeed())
			Expect(kafka.Kill()).To(Succeed())
			Expect(kafka.LoseDisk()).To(Succeed())
			Expect(kafka.Restart(context.Background())).To(Succeed())
			Expect(log.Rejoin(context.Background())).To(Succeed())
		},
		back: func() {
			if repair != nil {
				Expect(repair()).To(Succeed())
				repair = nil
			}
		},
		about:      func(c *hexactfv1.Challenge) []hexactftest.Message { return consumer().About(c) },
		unfinished: func() []string { return consumer().Unfinished() },
	}
}

// HEXACTF_LIVES is the number of challenges, by default few. make chaos-hexactf sets it, and uses a real broker
// (HEXACTF_KAFKA). The seed of a run is that of Ginkgo.
var _ = Describe("While operators are killed, and the API server and the broker fail at times,", func() {
	It("no message is lost, no object is left, and every challenge is reported from its creation to its deletion", func(ctx context.Context) {
		count, err := strconv.Atoi(cmp.Or(os.Getenv("HEXACTF_LIVES"), "24"))
		Expect(err).NotTo(HaveOccurred())
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		over := brokerOfSpec(ctx, random)
		about := transport.NewWeather(GinkgoRandomSeed())
		env := inprocess.With(map[string]string{"KAFKA_BROKERS": over.brokers, "KAFKA_DELETE_TIMEOUT": "10m"})
		lost := inprocess.Metric("hexactf_messages_lost_total")
		ns := hexactftest.Namespace(ctx)
		for seconds := 2; seconds <= 8; seconds += 3 {
			hexactftest.Definition(ctx, ns, fmt.Sprint("web-", seconds), hexactftest.OneComponent, hexactftest.Lasting(time.Duration(seconds)*time.Second))
		}
		DeferCleanup(over.back)

		all := make([]*hexactfv1.Challenge, 0, count)
		deaths, lostDisks := 0, 0
		for len(all) < count {
			if over.loseDisk != nil && random.IntN(4) == 0 {
				over.back()
				over.loseDisk()
				lostDisks++
			}
			m := transport.NewKill(1+random.Int64N(40), random.IntN(2) == 0, concerns)
			stop := inprocess.Instead(clock.RealClock{}, env, func(next http.RoundTripper) http.RoundTripper { return m.Wrap(about.Wrap(next)) })
			about.Blows.Store(true)
			if random.IntN(2) == 0 {
				over.away()
			} else {
				over.back()
			}
			for range min(count-len(all), 1+random.IntN(8)) {
				all = append(all, hexactftest.Challenge(ctx, ns, fmt.Sprint("web-", 2+3*random.IntN(3))))
			}
			select {
			case <-m.Dead:
				deaths++
			case <-time.After(time.Duration(random.IntN(4000)) * time.Millisecond):
			}
			about.Blows.Store(false)
			stop()
		}
		AddReportEntry("the faults", fmt.Sprintf("%d challenges; operators cut off at a write: %d; requests refused: %d; answers lost: %d; disks of the broker lost: %d",
			len(all), deaths, about.Spoilt.Load(), about.Lost.Load(), lostDisks))

		By("the end of the faults")
		over.back()
		inprocess.Instead(clock.RealClock{}, env, nil)
		for _, c := range all {
			expect.Gone(ctx, c)
		}
		for _, c := range all {
			Eventually(func(g Gomega) {
				received := over.about(c)
				g.Expect(received).NotTo(BeEmpty())
				for i, m := range received {
					g.Expect(m.Sequence).To(Equal(int64(i+1)), "a message is missing")
				}
				g.Expect(received[0].NewStatus).To(Equal(hexactfv1.StateCreating))
				g.Expect(received[len(received)-1].NewStatus).To(Equal(hexactfv1.StateDeleted))
			}).Should(Succeed())
		}
		Eventually(over.unfinished).Should(BeEmpty())
		for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}} {
			Eventually(func() []string { return apiserver.Names(ctx, list, client.InNamespace(ns)) }).Should(BeEmpty())
		}
		Expect(inprocess.Metric("hexactf_messages_lost_total")).To(Equal(lost))
	}, SpecTimeout(time.Hour))
})

// KAFKA_PAUSE is how long the broker does not answer, by default a short time. make hexactf-pause sets it, and uses a
// real broker (HEXACTF_KAFKA).
var _ = Describe("While the broker is paused for a long time,", func() {
	It("challenges start, run and expire, and all messages arrive in order when the broker answers again", func(ctx context.Context) {
		const every, together = 4 * time.Second, 4
		pause, err := time.ParseDuration(cmp.Or(os.Getenv("KAFKA_PAUSE"), "20s"))
		Expect(err).NotTo(HaveOccurred())
		over := brokerOfSpec(ctx, rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 3)))
		inprocess.Restart(map[string]string{"KAFKA_BROKERS": over.brokers, "KAFKA_DELETE_TIMEOUT": (2*pause + 10*time.Minute).String()}, nil)
		lost := inprocess.Metric("hexactf_messages_lost_total")
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		hexactftest.Definition(ctx, ns, "short", hexactftest.OneComponent, hexactftest.Lasting(10*time.Second))
		before := running(ctx, ns, "web")
		Eventually(func() int { return len(over.about(before)) }).Should(Equal(2))

		DeferCleanup(over.back)
		over.pause()
		during := running(ctx, ns, "web")
		var all []*hexactfv1.Challenge
		elapsed := time.After(pause)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for paused := true; paused; {
			for range together {
				all = append(all, hexactftest.Challenge(ctx, ns, "short"))
			}
			select {
			case <-ticker.C:
			case <-elapsed:
				paused = false
			}
		}
		first := all[0]
		hexactftest.Reaches(ctx, first, hexactfv1.StateTerminating)
		Expect(first.Status.RunningAt).NotTo(BeNil(), "it did not run")
		for _, c := range append([]*hexactfv1.Challenge{before, during}, all...) {
			now := get(ctx, ns, c.Name, &hexactfv1.Challenge{})
			if c == before || c == during {
				Expect(now.DeletionTimestamp).To(BeNil(), "a challenge was deleted because the broker does not answer")
				Expect(now.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))
			}
			if c != before {
				Expect(over.about(c)).To(BeEmpty(), "the broker was not paused")
			}
		}

		over.back()
		for _, c := range all {
			expect.Gone(ctx, c)
		}
		hears := func(c *hexactfv1.Challenge, want ...hexactfv1.State) {
			GinkgoHelper()
			Eventually(func() (states []hexactfv1.State) {
				for _, m := range over.about(c) {
					states = append(states, m.NewStatus)
				}
				return states
			}).Should(Equal(want))
		}
		hears(before, hexactfv1.StateCreating, hexactfv1.StateRunning)
		hears(during, hexactfv1.StateCreating, hexactfv1.StateRunning)
		for _, c := range all {
			hears(c, hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted)
		}
		Expect(inprocess.Metric("hexactf_messages_lost_total")).To(Equal(lost))
		AddReportEntry("the pause", fmt.Sprintf("%s, in which %d challenges were created", pause, len(all)))
		// The messages about the deletion of the remaining challenges arrive before the real broker stops.
		for _, c := range []*hexactfv1.Challenge{before, during} {
			hexactftest.Delete(ctx, c)
			expect.Gone(ctx, c)
		}
	}, SpecTimeout(time.Hour))
})
