package warm

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
	"github.com/bergctf/berg-operator/internal/kit/naming"
)

// asked is what platforms ask for, by the namespace of their registrations and the label value that names the Challenge.
type asked map[types.NamespacedName]bergv1.Warm

// readAsked reads the labels of registrations. The largest values of a Challenge count, and no maximum is the largest. A
// registration whose label cannot be read asks for nothing: labels are written by platforms, and a mistake must not stop the
// pools of others.
func readAsked(registrations []corev1.ConfigMap) asked {
	all := asked{}
	for n := range registrations {
		labels := registrations[n].Labels
		first, second, _ := strings.Cut(labels[bergv1.LabelWarm], "-")
		minimum, err := strconv.ParseInt(first, 10, 32)
		maximum, maxErr := strconv.ParseInt(second, 10, 32)
		if err != nil || maxErr != nil || minimum <= 0 {
			continue
		}
		key := types.NamespacedName{Namespace: registrations[n].Namespace, Name: labels[bergv1.LabelPrepullChallenge]}
		w := bergv1.Warm{Min: int32(minimum), Max: int32(maximum)}
		if known, exists := all[key]; exists {
			unbounded := known.Max == 0 || w.Max == 0
			w = bergv1.Warm{Min: max(known.Min, w.Min), Max: max(known.Max, w.Max)}
			if unbounded {
				w.Max = 0
			}
		}
		all[key] = w
	}
	return all
}

// find returns how many prepared instances a Challenge shall have: its own spec.warm, or what platforms ask for. Nil: none.
func (a asked) find(c *bergv1.Challenge) *bergv1.Warm {
	if c.Spec.Warm != nil {
		return c.Spec.Warm
	}
	w, exists := a[types.NamespacedName{Namespace: c.Namespace, Name: naming.LabelValue(c.Name)}]
	if !exists {
		return nil
	}
	// The Challenge may have changed since the platform asked.
	changed := bergv1.Challenge{Spec: c.Spec}
	changed.Spec.Warm = &w
	if len(rules.ValidateWarm(&changed)) > 0 {
		return nil
	}
	return &w
}
