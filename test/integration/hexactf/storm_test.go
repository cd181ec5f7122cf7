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

// sky is what a storm does to a broker, and what arrives there all the same.
type sky struct {
	brokers    string
	away, back func()
	// pause lets the broker answer nobody, until back.
	pause func()
	// rob takes its disk from the broker, which has to be there, and nobody may send. What was
	// acknowledged before was seen. Nil: the broker has no disk.
	rob   func()
	about func(*hexactfv1.Challenge) []hexactftest.Message
	// unfinished are the challenges whose last message is not the latest about them.
	unfinished func() []string
}

// fakeSky is that of the broker of this suite.
func fakeSky() sky {
	return sky{brokers: platform.Brokers, away: platform.Away, back: platform.Back, pause: platform.Away, about: platform.About, unfinished: platform.Unfinished}
}

// aboveUs is the sky of a spec: with a real Kafka where make says so (HEXACTF_KAFKA).
func aboveUs(ctx context.Context, random *rand.Rand) sky {
	GinkgoHelper()
	if os.Getenv("HEXACTF_KAFKA") != "" {
		return realSky(ctx, random)
	}
	return fakeSky()
}

// realSky is that of a real Kafka, which is paused at times and killed at others.
func realSky(ctx context.Context, random *rand.Rand) sky {
	GinkgoHelper()
	kafka, err := broker.Start(ctx, broker.Options{Dir: GinkgoT().TempDir(), Topic: "challenge-status", Output: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(kafka.Stop()).To(Succeed()) })
	log, err := kafka.Follow(context.Background())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(log.Close)
	var mend func() error
	pause := func() {
		if mend == nil {
			Expect(kafka.Pause()).To(Succeed())
			mend = kafka.Resume
		}
	}
	consumer := func() *hexactftest.Consumer {
		all := &hexactftest.Consumer{}
		for _, m := range log.Messages() {
			all.Read(m.Key, []byte(m.Value), m.Seen)
		}
		return all
	}
	return sky{
		brokers: kafka.Plaintext,
		pause:   pause,
		away: func() {
			if random.IntN(2) == 0 {
				pause()
			} else if mend == nil {
				Expect(kafka.Kill()).To(Succeed())
				mend = func() error { return kafka.Restart(context.Background()) }
			}
		},
		rob: func() {
			Expect(log.CatchUp(ctx)).To(Succeed())
			Expect(kafka.Kill()).To(Succeed())
			Expect(kafka.LoseDisk()).To(Succeed())
			Expect(kafka.Restart(context.Background())).To(Succeed())
			Expect(log.Rejoin(context.Background())).To(Succeed())
		},
		back: func() {
			if mend != nil {
				Expect(mend()).To(Succeed())
				mend = nil
			}
		},
		about:      func(c *hexactfv1.Challenge) []hexactftest.Message { return consumer().About(c) },
		unfinished: func() []string { return consumer().Unfinished() },
	}
}

// HEXACTF_LIVES is how many challenges live in the storm: few, unless it says otherwise, as
// make chaos-hexactf does, which has a real broker too (HEXACTF_KAFKA). The seed of a run is that of Ginkgo.
var _ = Describe("While operators are killed, the API server fails and the broker comes and goes,", func() {
	It("nothing is lost, nothing is left, and every life is told from its beginning to its end", func(ctx context.Context) {
		count, err := strconv.Atoi(cmp.Or(os.Getenv("HEXACTF_LIVES"), "24"))
		Expect(err).NotTo(HaveOccurred())
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		over := aboveUs(ctx, random)
		about := transport.NewWeather(GinkgoRandomSeed())
		env := inprocess.With(map[string]string{"KAFKA_BROKERS": over.brokers, "KAFKA_DELETE_TIMEOUT": "10m"})
		lost := inprocess.Metric("hexactf_messages_lost_total")
		ns := hexactftest.Namespace(ctx)
		for seconds := 2; seconds <= 8; seconds += 3 {
			hexactftest.Definition(ctx, ns, fmt.Sprint("web-", seconds), hexactftest.OneComponent, hexactftest.Lasting(time.Duration(seconds)*time.Second))
		}
		DeferCleanup(over.back)

		all := make([]*hexactfv1.Challenge, 0, count)
		deaths, robberies := 0, 0
		for len(all) < count {
			if over.rob != nil && random.IntN(4) == 0 {
				over.back()
				over.rob()
				robberies++
			}
			m := &mortal{at: 1 + random.Int64N(40), before: random.IntN(2) == 0, dead: make(chan struct{})}
			stop := inprocess.Instead(clock.RealClock{}, env, func(next http.RoundTripper) http.RoundTripper { return m.wrap(about.Wrap(next)) })
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
			case <-m.dead:
				deaths++
			case <-time.After(time.Duration(random.IntN(4000)) * time.Millisecond):
			}
			about.Blows.Store(false)
			stop()
		}
		AddReportEntry("the storm", fmt.Sprintf("%d challenges; operators cut off at a write: %d; requests refused: %d; answers lost: %d; disks of the broker lost: %d",
			len(all), deaths, about.Spoilt.Load(), about.Lost.Load(), robberies))

		By("calm")
		over.back()
		inprocess.Instead(clock.RealClock{}, env, nil)
		for _, c := range all {
			expect.Gone(ctx, c)
		}
		for _, c := range all {
			Eventually(func(g Gomega) {
				told := over.about(c)
				g.Expect(told).NotTo(BeEmpty())
				for i, m := range told {
					g.Expect(m.Sequence).To(Equal(int64(i+1)), "a message is missing")
				}
				g.Expect(told[0].NewStatus).To(Equal(hexactfv1.StateCreating))
				g.Expect(told[len(told)-1].NewStatus).To(Equal(hexactfv1.StateDeleted))
			}).Should(Succeed())
		}
		Eventually(over.unfinished).Should(BeEmpty())
		for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}} {
			Eventually(func() []string { return apiserver.Names(ctx, list, client.InNamespace(ns)) }).Should(BeEmpty())
		}
		Expect(inprocess.Metric("hexactf_messages_lost_total")).To(Equal(lost))
	}, SpecTimeout(time.Hour))
})

// KAFKA_PAUSE is for how long the broker is away: a little, unless it says otherwise, as make
// hexactf-pause does, which has a real broker too (HEXACTF_KAFKA).
var _ = Describe("While the broker is paused for long,", func() {
	It("challenges start, run and expire, and all of it arrives in order when it is back", func(ctx context.Context) {
		const every, together = 4 * time.Second, 4
		pause, err := time.ParseDuration(cmp.Or(os.Getenv("KAFKA_PAUSE"), "20s"))
		Expect(err).NotTo(HaveOccurred())
		over := aboveUs(ctx, rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 3)))
		inprocess.Restart(map[string]string{"KAFKA_BROKERS": over.brokers, "KAFKA_DELETE_TIMEOUT": (2*pause + 10*time.Minute).String()}, nil)
		lost := inprocess.Metric("hexactf_messages_lost_total")
		ns := hexactftest.Namespace(ctx)
		hexactftest.Definition(ctx, ns, "web", hexactftest.OneComponent)
		hexactftest.Definition(ctx, ns, "short", hexactftest.OneComponent, hexactftest.Lasting(10*time.Second))
		before := lives(ctx, ns, "web")
		Eventually(func() int { return len(over.about(before)) }).Should(Equal(2))

		DeferCleanup(over.back)
		over.pause()
		meanwhile := lives(ctx, ns, "web")
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
		for _, c := range append([]*hexactfv1.Challenge{before, meanwhile}, all...) {
			now := get(ctx, ns, c.Name, &hexactfv1.Challenge{})
			if c == before || c == meanwhile {
				Expect(now.DeletionTimestamp).To(BeNil(), "a challenge has ended since the broker is away")
				Expect(now.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))
			}
			if c != before {
				Expect(over.about(c)).To(BeEmpty(), "the broker was not away")
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
		hears(meanwhile, hexactfv1.StateCreating, hexactfv1.StateRunning)
		for _, c := range all {
			hears(c, hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted)
		}
		Expect(inprocess.Metric("hexactf_messages_lost_total")).To(Equal(lost))
		AddReportEntry("the pause", fmt.Sprintf("%s, in which %d challenges began", pause, len(all)))
		// The challenges that are left tell of their end before the real broker stops.
		for _, c := range []*hexactfv1.Challenge{before, meanwhile} {
			hexactftest.Delete(ctx, c)
			expect.Gone(ctx, c)
		}
	}, SpecTimeout(time.Hour))
})
