package main

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestObserverKnowsWhatMayEnd(t *testing.T) {
	began := metav1.NewTime(time.Now().Add(-time.Minute))
	over, ahead := "1s", "1h"
	for name, tc := range map[string]struct {
		timeout string
		began   *metav1.Time
		asked   bool
		reason  bergv1.TerminationReason // written before the deletion
		well    bool
	}{
		"over, with its reason":              {over, &began, false, bergv1.TerminationTimeout, true},
		"over, the storm took its reason":    {over, &began, false, "", true},
		"asked for":                          {ahead, &began, true, "", true},
		"asked for, with a reason":           {ahead, &began, true, bergv1.TerminationAdmin, true},
		"too early":                          {ahead, &began, false, bergv1.TerminationTimeout, false},
		"without a request":                  {ahead, &began, false, "", false},
		"never begun":                        {over, nil, false, bergv1.TerminationTimeout, false},
		"never begun, and without a request": {over, nil, false, "", false},
	} {
		l := &life{name: "a"}
		l.asked.Store(tc.asked)
		w := newObserver(nil, []*life{l})
		i := &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}, Spec: bergv1.ChallengeInstanceSpec{Timeout: tc.timeout}}
		i.Status.StartedAt = tc.began
		before := i.DeepCopy()
		if i.Spec.TerminationReason = tc.reason; tc.reason != "" {
			w.checkEnd(before, i)
			before = i.DeepCopy()
		}
		i.DeletionTimestamp = new(metav1.Now())
		w.checkEnd(before, i)
		if err := w.violations(); (err == nil) != tc.well {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestObserverCounts(t *testing.T) {
	instance := func(uid types.UID, id string) *bergv1.ChallengeInstance {
		return &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}, Status: bergv1.ChallengeInstanceStatus{InstanceID: id}}
	}
	check := func(uid types.UID, challenge string, running bool) *bergv1.ChallengeCheck {
		c := &bergv1.ChallengeCheck{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid}}
		c.Spec.ChallengeRef.Name = challenge
		if running {
			c.Status.Run = &bergv1.CheckRun{}
		}
		return c
	}
	ofFew := func(uid types.UID, id string) *bergv1.ChallengeInstance {
		i := instance(uid, id)
		i.Spec.ChallengeRef.Name = few
		return i
	}
	roomy := func(all, fews int) *observer {
		w := newObserver(nil, nil)
		w.started, w.startedFew = newCrowd(all), newCrowd(fews)
		return w
	}
	const room = "of which there may be"
	type sight struct {
		object client.Object
		gone   bool
	}
	for name, tc := range map[string]struct {
		sights []sight
		wrong  bool
	}{
		"one after the other":      {[]sight{{instance("a", "1"), false}, {instance("b", "2"), false}, {instance("c", ""), false}, {instance("a", "1"), true}, {instance("c", "3"), false}}, false},
		"one too many":             {[]sight{{instance("a", "1"), false}, {instance("b", "2"), false}, {instance("c", "3"), false}}, true},
		"one of the few":           {[]sight{{ofFew("a", "1"), false}, {instance("b", "2"), false}, {ofFew("c", ""), false}}, false},
		"too many of the few":      {[]sight{{ofFew("a", "1"), false}, {ofFew("b", "2"), false}}, true},
		"checks of two":            {[]sight{{check("a", "web", true), false}, {check("b", "plain", true), false}}, false},
		"checks of three":          {[]sight{{check("a", "web", true), false}, {check("b", "plain", true), false}, {check("c", few, true), false}}, true},
		"a check after another":    {[]sight{{check("a", "web", true), false}, {check("a", "web", false), false}, {check("b", "web", true), false}}, false},
		"a check next to another":  {[]sight{{check("a", "web", true), false}, {check("b", "web", true), false}}, true},
		"a check, another is gone": {[]sight{{check("a", "web", true), false}, {check("a", "web", true), true}, {check("b", "web", true), false}}, false},
	} {
		w := roomy(2, 1)
		for _, s := range tc.sights {
			w.see(s.object, s.gone)
		}
		if found := strings.Contains(strings.Join(w.found, "\n"), room); found != tc.wrong {
			t.Errorf("%s: %q", name, w.found)
		}
	}
	w := roomy(1, 1)
	w.see(ofFew("a", "1"), false)
	w.gap(&bergv1.ChallengeInstanceList{Items: []bergv1.ChallengeInstance{*ofFew("b", "2")}})
	w.see(ofFew("b", "2"), false)
	if strings.Contains(strings.Join(w.found, "\n"), room) {
		t.Errorf("what went unseen is counted: %q", w.found)
	}
}

func TestObserverChecksRecords(t *testing.T) {
	record := func(name, of, says string) bergv1.ChallengeInstanceRecord {
		r := bergv1.ChallengeInstanceRecord{ObjectMeta: metav1.ObjectMeta{Name: name}}
		r.Spec.Instance.UID = of
		r.Spec.Containers = []bergv1.RecordedContainer{{Name: "web", Log: says}}
		return r
	}
	for name, tc := range map[string]struct {
		all  []bergv1.ChallengeInstanceRecord
		well bool
	}{
		"well":                 {[]bergv1.ChallengeInstanceRecord{record("a", "a", "hello"), record("b", "b", "hello")}, true},
		"a flag":               {[]bergv1.ChallengeInstanceRecord{record("a", "a", "it is "+flagPrefix+"7-1}")}, false},
		"two of one":           {[]bergv1.ChallengeInstanceRecord{record("a", "a", ""), record("a2", "a", "")}, false},
		"of none that was met": {[]bergv1.ChallengeInstanceRecord{record("c", "c", "")}, false},
	} {
		w := newObserver(nil, nil)
		w.met["a"], w.met["b"] = true, true
		if err := w.checkRecords(tc.all); (err == nil) != tc.well {
			t.Errorf("%s: %v", name, err)
		}
	}
}
