package hexactf

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

// storedEndings returns the names of the Leases in which messages wait until a name is free.
func storedEndings(ctx context.Context) []string {
	GinkgoHelper()
	all := apiserver.Names(ctx, &coordinationv1.LeaseList{}, client.InNamespace(installed.Namespace))
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, "hexactf-deleted-") })
}

// successor is a challenge of the same name and labels.
func successor(c *hexactfv1.Challenge) *hexactfv1.Challenge {
	return &hexactfv1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, Labels: map[string]string{
			hexactfv1.LabelChallengeID: c.Labels[hexactfv1.LabelChallengeID], hexactfv1.LabelUser: c.Labels[hexactfv1.LabelUser],
		}},
		Spec: c.Spec,
	}
}

var _ = Describe("A player who starts a challenge again", func() {
	It("finds the name free at the moment at which the message Deleted arrives", func(ctx context.Context) {
		const players = 20
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		var all []*hexactfv1.Challenge
		for range players {
			all = append(all, hexactftest.Challenge(ctx, ns, "web"))
		}
		for _, c := range all {
			hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
		}
		again := make([]error, players)
		var waiting sync.WaitGroup
		for i, c := range all {
			waiting.Go(func() {
				for tick := time.Tick(200 * time.Microsecond); ; {
					states := platform.States(c)
					if len(states) > 0 && states[len(states)-1] == hexactfv1.StateDeleted {
						again[i] = k8s.Create(ctx, successor(c))
						return
					}
					select {
					case <-tick:
					case <-ctx.Done():
						again[i] = fmt.Errorf("no message arrived: %w", ctx.Err())
						return
					}
				}
			})
		}
		for _, c := range all {
			hexactftest.Delete(ctx, c)
		}
		waiting.Wait()
		for i, err := range again {
			Expect(err).NotTo(HaveOccurred(), "player %d", i)
		}
		for _, c := range all {
			platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted)
			next := successor(c)
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), next)).To(Succeed())
			Expect(next.UID).NotTo(Equal(c.UID))
			hexactftest.Reaches(ctx, next, hexactfv1.StateRunning)
			hexactftest.Delete(ctx, next)
			expect.Gone(ctx, next)
		}
		Eventually(storedEndings).WithContext(ctx).Should(BeEmpty())
	})

	It("before the broker answers does not overtake the message about the end, also after a restart of the operator", func(ctx context.Context) {
		ns := hexactftest.Define(ctx, "web", hexactftest.OneComponent)
		c := running(ctx, ns, "web")
		platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning)
		platform.Away()
		DeferCleanup(platform.Back)
		hexactftest.Delete(ctx, c)
		expect.Gone(ctx, c)
		Expect(platform.States(c)).To(HaveLen(2))
		Expect(storedEndings(ctx)).To(ConsistOf("hexactf-deleted-" + string(c.UID)))
		Expect(inprocess.Metric("hexactf_messages_unsent")).To(BeNumerically("==", 1))

		inprocess.Restart(nil, nil)
		next := successor(c)
		Expect(k8s.Create(ctx, next)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, next))).To(Succeed()) })
		hexactftest.Reaches(ctx, next, hexactfv1.StateRunning)
		Expect(platform.States(next)).To(BeEmpty())
		platform.Back()
		platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning, hexactfv1.StateDeleted)
		platform.Receives(next, hexactfv1.StateCreating, hexactfv1.StateRunning)
		Eventually(storedEndings).WithContext(ctx).Should(BeEmpty())
	})
})
