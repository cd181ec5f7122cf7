package bergtest

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
)

// Versions watches one instance and returns its versions as they come.
func Versions(ctx context.Context, i client.Object) <-chan watch.Event {
	GinkgoHelper()
	w, err := apiserver.Client.Watch(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(i.GetNamespace()))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	return w.ResultChan()
}

// LastOf returns the last version of an instance before it was gone.
func LastOf(all <-chan watch.Event, uid types.UID) *bergv1.ChallengeInstance {
	GinkgoHelper()
	for {
		var e watch.Event
		Eventually(all).Should(Receive(&e))
		if i, ok := e.Object.(*bergv1.ChallengeInstance); ok && i.UID == uid && e.Type == watch.Deleted {
			return i
		}
	}
}

// Settle waits until there are no instances but those of a namespace, and until these and all pods have not
// changed for three seconds.
func Settle(ctx context.Context, ns string) {
	GinkgoHelper()
	const still = 3 * time.Second
	last, since := "", time.Now()
	Eventually(func(g Gomega) {
		var instances bergv1.ChallengeInstanceList
		g.Expect(apiserver.Client.List(ctx, &instances)).To(Succeed())
		var pods corev1.PodList
		g.Expect(apiserver.Client.List(ctx, &pods)).To(Succeed())
		var now strings.Builder
		for _, i := range instances.Items {
			g.Expect(i.Namespace).To(Equal(ns), "instances of other specs are still being deleted")
			now.WriteString(i.ResourceVersion + " ")
		}
		for _, p := range pods.Items {
			now.WriteString(p.ResourceVersion + " ")
		}
		if now.String() != last {
			last, since = now.String(), time.Now()
		}
		g.Expect(time.Since(since)).To(BeNumerically(">", still))
	}).Should(Succeed())
}
