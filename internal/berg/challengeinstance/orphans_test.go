package challengeinstance

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/gauge"
)

// labelled is a namespace as the operator makes it for an instance.
func labelled(n *corev1.Namespace) {
	n.Labels = map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentNamespace}
	n.Annotations[bergv1.AnnotationInstance] = "berg/former"
}

func TestOnlyTheNamespaceOfAnInstanceIsProvablyOne(t *testing.T) {
	for name, tc := range map[string]struct {
		ns   *corev1.Namespace
		want bool
	}{
		"ours":              {namespaceOf("u", labelled), true},
		"without labels":    {namespaceOf("u"), false},
		"of somebody":       {namespaceOf("u", labelled, func(n *corev1.Namespace) { n.Labels[bergv1.LabelManagedBy] = "helm" }), false},
		"of another kind":   {namespaceOf("u", labelled, func(n *corev1.Namespace) { delete(n.Labels, bergv1.LabelComponent) }), false},
		"without a proof":   {namespaceOf("", labelled), false},
		"of another name":   {namespaceOf("u", labelled, func(n *corev1.Namespace) { n.Name = "berg" }), false},
		"of nobody at all":  {&corev1.Namespace{}, false},
		"that is going too": {namespaceOf("u", labelled, terminating), true},
	} {
		if _, got := instanceOf(tc.ns); got != tc.want {
			t.Errorf("%s: provable is %v", name, got)
		}
	}
}

func TestConflictSaysWhatIsInTheWay(t *testing.T) {
	for name, tc := range map[string]struct {
		ns   *corev1.Namespace
		want []string
	}{
		"somebody's":    {namespaceOf("u"), []string{"does not belong to this instance", "delete or rename"}},
		"left":          {namespaceOf("u", labelled), []string{"left behind by instance berg/former", "delete the namespace", "ORPHAN_GRACE_PERIOD"}},
		"left, it ends": {namespaceOf("u", labelled, terminating), []string{"left behind by instance berg/former", "is being deleted", "starts when it is gone"}},
	} {
		p := check(observed(candidate("m", 5), tc.ns), testConfig(t, nil).Challenge)
		if p == nil || p.Reason != bergv1.ReasonNamespaceConflict {
			t.Errorf("%s: %+v", name, p)
			continue
		}
		for _, part := range append(tc.want, tc.ns.Name) {
			if !strings.Contains(p.Message, part) {
				t.Errorf("%s: %q does not say %q", name, p.Message, part)
			}
		}
	}
}

func TestOrphansAreCountedFromWhenTheyWereSeen(t *testing.T) {
	var met orphansSeen
	one := namespaceOf("u", func(n *corev1.Namespace) { n.UID = "one" })
	if since, news := met.note(one, noon); !news || since != noon {
		t.Errorf("since %s, news %v", since, news)
	}
	if since, news := met.note(one, noon.Add(time.Minute)); news || since != noon {
		t.Errorf("a second look: since %s, news %v", since, news)
	}
	successor := one.DeepCopy()
	successor.UID = types.UID("other")
	if since, news := met.note(successor, noon.Add(time.Hour)); !news || since != noon.Add(time.Hour) {
		t.Errorf("another one of its name: since %s, news %v", since, news)
	}
	if met.count() != 1 {
		t.Errorf("%d are counted", met.count())
	}
	met.forget("another")
	met.forget(one.Name)
	if met.count() != 0 || len(met.of) != 0 {
		t.Errorf("%d are counted, %d remembered", met.count(), len(met.of))
	}
}

func TestOnlyTheLeaderCountsOrphans(t *testing.T) {
	g := gauge.NewNumber("orphans", "Orphans.")
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(g)
	shown := func() int {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return len(families)
	}
	elected := make(chan struct{})
	if shown() != 0 {
		t.Error("counted before it was watched")
	}
	g.Watch((&orphansSeen{}).report, elected)
	if shown() != 0 {
		t.Error("counted by one that does not lead")
	}
	close(elected)
	if shown() != 1 {
		t.Error("not counted by the leader")
	}
}
