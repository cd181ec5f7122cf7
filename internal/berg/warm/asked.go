package warm

import (
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/kit/naming"
)

// find returns how many prepared instances a Challenge shall have: its own spec.warm, or what platforms ask for. Nil: none.
func (o *observed) find(c *bergv1.Challenge) *bergv1.Warm {
	if c.Spec.Warm != nil {
		return c.Spec.Warm
	}
	w, ok := o.asked[types.NamespacedName{Namespace: c.Namespace, Name: naming.LabelValue(c.Name)}]
	if !ok {
		return nil
	}
	// The rules of spec.warm hold for a platform too, and the Challenge may have changed since it asked.
	spec := bergv1.Challenge{Spec: c.Spec}
	spec.Spec.Warm = &w
	if len(rules.ValidateWarm(&spec)) > 0 {
		return nil
	}
	return &w
}

// observeAsked reads the registrations with min and max of platforms. The largest values of a Challenge count.
func (r *Reconciler) observeAsked(ctx context.Context, o *observed) error {
	var registrations corev1.ConfigMapList
	o.asked = map[types.NamespacedName]bergv1.Warm{}
	if err := r.Client.List(ctx, &registrations, client.UnsafeDisableDeepCopy, client.HasLabels{bergv1.LabelWarm, bergv1.LabelPrepullChallenge}); err != nil {
		return err
	}
	for n := range registrations.Items {
		labels := registrations.Items[n].Labels
		first, second, _ := strings.Cut(labels[bergv1.LabelWarm], "-")
		minimum, err := strconv.ParseInt(first, 10, 32)
		maximum, maxErr := strconv.ParseInt(second, 10, 32)
		if err != nil || maxErr != nil || minimum <= 0 || maximum < 0 {
			continue
		}
		key := types.NamespacedName{Namespace: registrations.Items[n].Namespace, Name: labels[bergv1.LabelPrepullChallenge]}
		known, again := o.asked[key]
		if again && (known.Max == 0 || maximum == 0) {
			maximum = 0 // one of them has no bound
		}
		w := bergv1.Warm{Min: max(known.Min, int32(minimum))}
		if maximum > 0 {
			w.Max = max(known.Max, int32(maximum))
		}
		o.asked[key] = w
	}
	return nil
}
