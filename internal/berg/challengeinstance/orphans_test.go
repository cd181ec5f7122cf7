package challengeinstance

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bergctf/berg-operator/internal/kit/gauge"
)

func TestOrphansCountFromTheirFirstObservation(t *testing.T) {
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
	if met.count() != 0 || len(met.uidByName) != 0 {
		t.Errorf("%d are counted, %d remembered", met.count(), len(met.uidByName))
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
