package hexactf

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
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
)

// sky is what a storm does to a broker, and what arrives there all the same.
type sky struct {
	brokers    string
	away, back func()
	about      func(*hexactfv1.Challenge) []hexactftest.Message
}

// fakeSky is that of the broker of this suite.
func fakeSky() sky {
	return sky{platform.Brokers, platform.Away, platform.Back, platform.About}
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
	return sky{
		brokers: kafka.Plaintext,
		away: func() {
			if mend != nil {
				return
			}
			hurt := kafka.Pause
			mend = kafka.Resume
			if random.IntN(2) == 0 {
				hurt = kafka.Kill
				mend = func() error { return kafka.Restart(context.Background()) }
			}
			Expect(hurt()).To(Succeed())
		},
		back: func() {
			if mend != nil {
				Expect(mend()).To(Succeed())
				mend = nil
			}
		},
		about: func(c *hexactfv1.Challenge) []hexactftest.Message {
			var all hexactftest.Consumer
			for _, m := range log.Messages() {
				all.Read(m.Key, []byte(m.Value), m.Seen)
			}
			return all.About(c)
		},
	}
}

// HEXACTF_LIVES is how many challenges live in the storm: few, unless it says otherwise, as
// make chaos-hexactf does, which has a real broker too (HEXACTF_KAFKA). The seed of a run is that of Ginkgo.
var _ = Describe("While operators are killed and the broker comes and goes,", func() {
	It("nothing is lost, nothing is left, and every life is told from its beginning to its end", func(ctx context.Context) {
		count, err := strconv.Atoi(cmp.Or(os.Getenv("HEXACTF_LIVES"), "24"))
		Expect(err).NotTo(HaveOccurred())
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		over := fakeSky()
		if os.Getenv("HEXACTF_KAFKA") != "" {
			over = realSky(ctx, random)
		}
		env := inprocess.With(map[string]string{"KAFKA_BROKERS": over.brokers, "KAFKA_DELETE_TIMEOUT": "10m"})
		lost := inprocess.Metric("hexactf_messages_lost_total")
		ns := hexactftest.Namespace(ctx)
		for seconds := 2; seconds <= 8; seconds += 3 {
			hexactftest.Definition(ctx, ns, fmt.Sprint("web-", seconds), hexactftest.OneComponent, hexactftest.Lasting(time.Duration(seconds)*time.Second))
		}
		DeferCleanup(over.back)

		all := make([]*hexactfv1.Challenge, 0, count)
		for len(all) < count {
			m := &mortal{at: 1 + random.Int64N(40), dead: make(chan struct{})}
			stop := inprocess.Instead(clock.RealClock{}, env, m.wrap)
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
			case <-time.After(time.Duration(random.IntN(4000)) * time.Millisecond):
			}
			stop()
		}

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
		for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}} {
			Eventually(func() []string { return apiserver.Names(ctx, list, client.InNamespace(ns)) }).Should(BeEmpty())
		}
		Expect(inprocess.Metric("hexactf_messages_lost_total")).To(Equal(lost))
	}, SpecTimeout(time.Hour))
})
