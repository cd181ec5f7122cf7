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
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

// HEXACTF_LIVES is how many challenges live in the storm: few, unless it says otherwise, as
// make hexactf-storm does. The seed of a run is that of Ginkgo.
var _ = Describe("While operators are killed and the broker comes and goes,", func() {
	It("nothing is lost, nothing is left, and every life is told from its beginning to its end", func(ctx context.Context) {
		count, err := strconv.Atoi(cmp.Or(os.Getenv("HEXACTF_LIVES"), "24"))
		Expect(err).NotTo(HaveOccurred())
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1)) //nolint:gosec // it is to be repeatable
		env := inprocess.With(map[string]string{"KAFKA_DELETE_TIMEOUT": "10m"})
		lost := inprocess.Metric("hexactf_messages_lost_total")
		ns := hexactftest.Namespace(ctx)
		for seconds := 2; seconds <= 8; seconds += 3 {
			hexactftest.Definition(ctx, ns, fmt.Sprint("web-", seconds), hexactftest.OneComponent, hexactftest.Lasting(time.Duration(seconds)*time.Second))
		}
		DeferCleanup(platform.Back)

		all := make([]*hexactfv1.Challenge, 0, count)
		for len(all) < count {
			m := &mortal{at: 1 + random.Int64N(40), dead: make(chan struct{})}
			stop := inprocess.Instead(clock.RealClock{}, env, m.wrap)
			if random.IntN(2) == 0 {
				platform.Away()
			} else {
				platform.Back()
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
		platform.Back()
		inprocess.Instead(clock.RealClock{}, env, nil)
		for _, c := range all {
			expect.Gone(ctx, c)
		}
		for _, c := range all {
			Eventually(func(g Gomega) {
				told := platform.About(c)
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
