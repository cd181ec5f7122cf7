package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/test/lib/authors"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// The unit tests try the same authors by the million, and judge what is planned
// themselves. Here the API server does, and its word is what counts.
var _ = Describe("Challenges of careless and hostile authors", func() {
	It("are accepted by a condition, or not, before any instance", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		c := bergtest.Challenge(ctx, ns, "twice", `containers: [{hostname: a, image: i, ports: [{name: web, port: 80, type: publicPort}, {name: web, port: 81}]}]`)
		expect.Shows(ctx, c, bergv1.ChallengeConditionAccepted, metav1.ConditionFalse, bergv1.ReasonInvalidChallenge)
		Expect(meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionAccepted).Message).To(ContainSubstring("spec.containers[0].ports[1].name"))
		Expect(meta.IsStatusConditionFalse(c.Status.Conditions, reconcile.ConditionReady)).To(BeTrue())
		expect.Event(ctx, c, corev1.EventTypeWarning, bergv1.ReasonInvalidChallenge)
		bergtest.Respecify(ctx, c, bergtest.OneContainer)
		expect.Shows(ctx, c, bergv1.ChallengeConditionAccepted, metav1.ConditionTrue, bergv1.ChallengeAccepted)
		expect.Event(ctx, c, corev1.EventTypeNormal, bergv1.ChallengeAccepted)
		Expect(meta.IsStatusConditionTrue(c.Status.Conditions, reconcile.ConditionReady)).To(BeTrue())
	})

	It("are refused, naming the field, or every object that is planned for them is accepted", func(ctx context.Context) {
		const seeds = 128
		ns := bergtest.Namespace(ctx)
		refused := 0
		var instances []*bergv1.ChallengeInstance
		for seed := range uint64(seeds) {
			spec := map[string]any{}
			Expect(json.Unmarshal(authors.New(seed, float64(seed%32)/512).Spec(), &spec)).To(Succeed())
			c := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
			c.SetGroupVersionKind(bergv1.GroupVersion.WithKind("Challenge"))
			c.SetNamespace(ns)
			c.SetName(fmt.Sprintf("seed-%d", seed))
			if err := k8s.Create(ctx, c); err != nil {
				Expect(apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)).To(BeTrue(), "seed %d: %s", seed, err)
				Expect(err).To(MatchError(ContainSubstring("spec.")), "seed %d", seed)
				refused++
				continue
			}
			instances = append(instances, bergtest.Instance(ctx, ns, c.GetName()))
		}
		built, failed := 0, 0
		for _, i := range instances {
			Eventually(func() error { return errors.Join(k8s.Get(ctx, client.ObjectKeyFromObject(i), i), cameToRest(i)) }).Should(Succeed(), i.Spec.ChallengeRef.Name)
			if i.Status.Phase == bergv1.PhaseFailed {
				failed++
			} else {
				built++
			}
		}
		AddReportEntry("authors", fmt.Sprintf("%d Challenges: %d refused by the API server, %d by the operator, %d built", seeds, refused, failed, built))
		Expect([]int{refused, failed, built}).To(HaveEach(BeNumerically(">", seeds/20)), "each happens")
	}, SpecTimeout(limits.Scaled(10*time.Minute)))
})

// cameToRest returns why an instance is neither built nor failed for a reason that
// names a field of what its author wrote.
func cameToRest(i *bergv1.ChallengeInstance) error {
	if slices.Contains([]bergv1.Phase{bergv1.PhaseStarting, bergv1.PhaseRunning}, i.Status.Phase) {
		if !meta.IsStatusConditionTrue(i.Status.Conditions, bergv1.ConditionUpToDate) {
			return fmt.Errorf("it does not run what its Challenge says: %s", expect.Conditions(i))
		}
		return nil
	}
	found := meta.FindStatusCondition(i.Status.Conditions, bergv1.ConditionChallengeFound)
	switch {
	case i.Status.Phase != bergv1.PhaseFailed || found == nil:
	case found.Reason == bergv1.ReasonNothingToRun:
		return nil
	case found.Reason == bergv1.ReasonInvalidChallenge && strings.Contains(found.Message, "spec."):
		return nil
	}
	return fmt.Errorf("%s: %s", i.Status.Phase, expect.Conditions(i))
}
