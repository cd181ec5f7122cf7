package quix

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

var _ = Describe("When it is created again and again,", func() {
	It("an Environment of one ID and name is ready and deleted, the last time as quickly as the first", func(ctx context.Context) {
		id := quixtest.NewID()
		contested := expect.Contests(ctx, &quixv1.EnvironmentList{}, client.MatchingFields{"metadata.name": id})
		var took []time.Duration
		for n := range 15 {
			By(fmt.Sprint("Environment ", n+1))
			env := &quixv1.Environment{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: quixv1.EnvironmentSpec{ID: id}}
			w, err := k8s.Watch(ctx, &quixv1.EnvironmentList{}, client.MatchingFields{"metadata.name": id})
			Expect(err).NotTo(HaveOccurred())
			began := time.Now()
			Expect(k8s.Create(ctx, env)).To(Succeed())
			if n == 0 {
				DeferCleanup(func(ctx context.Context) {
					last := &quixv1.Environment{ObjectMeta: metav1.ObjectMeta{Name: id}}
					Expect(client.IgnoreNotFound(k8s.Delete(ctx, last))).To(Succeed())
				})
			}
			Eventually(w.ResultChan()).Should(Receive(Satisfy(func(e watch.Event) bool {
				now, ok := e.Object.(*quixv1.Environment)
				return ok && now.UID == env.UID && now.Status.Phase == quixv1.PhaseReady
			})), "%s", contested)
			took = append(took, time.Since(began))
			w.Stop()
			expect.Deleted(ctx, env)
			Expect(contested()).To(BeEmpty())
		}
		expect.AsQuick(took)
	}, SpecTimeout(limits.Scaled(10*time.Minute)))
})
