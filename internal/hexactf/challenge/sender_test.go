package challenge

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestWhatIsKnownOfMessages(t *testing.T) {
	var d deliveries
	c := testChallenge()
	if got := d.get(c); got != (Delivery{}) {
		t.Errorf("at first: %+v", got)
	}
	if !d.failed(c, "away") || d.failed(c, "away") || !d.failed(c, "refused") {
		t.Error("the same reason is news, or another one is not")
	}
	if got := d.get(c); got.Problem != "refused" {
		t.Errorf("%+v", got)
	}
	if !d.acknowledged(c, 2) || d.acknowledged(c, 1) {
		t.Error("the recovery is reported not at all, or twice")
	}
	if got := d.get(c); got != (Delivery{Acknowledged: 2}) {
		t.Errorf("%+v", got)
	}
	// What is known does not count for another challenge of that name.
	another := testChallenge()
	another.UID = "another"
	if got := d.get(another); got != (Delivery{}) {
		t.Errorf("another: %+v", got)
	}
	d.forget(client.ObjectKeyFromObject(c))
	if len(d.all) != 0 {
		t.Errorf("left: %v", d.all)
	}
}

func TestWaitForTheBrokerBeginsOnce(t *testing.T) {
	var w deliveries
	c := testChallenge()
	if got := w.since(c, noon); got != noon {
		t.Errorf("begins at %s", got)
	}
	if got := w.since(c, noon.Add(time.Second)); got != noon {
		t.Errorf("begins again at %s", got)
	}
	if !w.lost(c) || w.lost(c) {
		t.Error("a loss is counted not at all, or twice")
	}
	another := testChallenge()
	another.UID = "another"
	if got := w.since(another, noon.Add(time.Hour)); got != noon.Add(time.Hour) {
		t.Errorf("another one begins at %s", got)
	}
	if !w.lost(another) {
		t.Error("the loss of another one is not counted")
	}
	w.forget(client.ObjectKeyFromObject(c))
	if len(w.all) != 0 {
		t.Errorf("left: %v", w.all)
	}
}

func TestADeletionWaitsNoLongerThanItMay(t *testing.T) {
	const timeout = 30 * time.Second
	c := testChallenge()
	c.DeletionTimestamp = &metav1.Time{Time: noon}
	away := Delivery{Problem: "away"}
	for name, tc := range map[string]struct {
		began time.Duration // after the deletion was requested, as is now
		known Delivery
		now   time.Duration
		want  time.Duration
	}{
		"the first process":                  {0, away, 10 * time.Second, 20 * time.Second},
		"at its end":                         {0, away, 30 * time.Second, 0},
		"the second process":                 {20 * time.Second, away, 25 * time.Second, 25 * time.Second},
		"the third one, with a limit":        {50 * time.Second, away, 55 * time.Second, 5 * time.Second},
		"a later one, after one attempt":     {5 * time.Minute, away, 5*time.Minute + time.Second, -4*time.Minute - time.Second},
		"a later one, before any has failed": {5 * time.Minute, Delivery{}, 5*time.Minute + time.Second, 29 * time.Second},
	} {
		if got := brokerTimeout(c, noon.Add(tc.began), tc.known, timeout, noon.Add(tc.now)); got != tc.want {
			t.Errorf("%s: it waits for %s, want %s", name, got, tc.want)
		}
	}
}
