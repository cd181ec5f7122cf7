package usage

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

var start = time.Date(2026, 11, 29, 22, 0, 0, 0, time.UTC)

func newList(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// stored returns a usage as the API server gives it back.
func stored(t *testing.T, u kibashipv1.ProjectUsage) (out kibashipv1.ProjectUsage) {
	t.Helper()
	text, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestABuildIsCountedOnce(t *testing.T) {
	var u kibashipv1.ProjectUsage
	build := Build{Run: "run-1", Started: start, Ended: start.Add(90 * time.Second), Succeeded: true, ImageBytes: 1 << 20}
	if !AddBuild(&u, build, newList("cpu", "2", "memory", "4Gi")) {
		t.Fatal("the first time it was not counted")
	}
	once := stored(t, u)
	build.Ended = build.Ended.Add(time.Hour) // where the end was not known, it is another one at the next try
	if u = stored(t, u); AddBuild(&u, build, nil) || !equality.Semantic.DeepEqual(u, once) {
		t.Errorf("it was counted again: %+v", u)
	}
	again := build
	again.Started = start.Add(time.Minute) // a run that was deleted, and started again
	again.Succeeded = false
	if !AddBuild(&u, again, nil) {
		t.Error("another run of this name was not counted")
	}
	day := u.Builds[0]
	if len(u.Builds) != 1 || day.Date != "2026-11-29" || day.Succeeded != 1 || day.Failed != 1 || day.ImageBytes != 2<<20 {
		t.Errorf("the day is %+v", u.Builds)
	}
	if seconds, want := day.LimitSeconds, newList("cpu", "180", "memory", "360Gi"); !equality.Semantic.DeepEqual(seconds, want) {
		t.Errorf("the limits are %v, want %v", seconds, want)
	}
}

func TestBuildsOfManyDaysAreBounded(t *testing.T) {
	var u kibashipv1.ProjectUsage
	for day := range 40 {
		for n := range 5 {
			at := start.AddDate(0, 0, (day+20)%40) // not in their order
			AddBuild(&u, Build{Run: fmt.Sprint(day, n), Started: at, Ended: at.Add(time.Second)}, nil)
		}
	}
	if len(u.Builds) != kibashipv1.UsageDays || len(u.CountedBuilds) != maxCounted {
		t.Errorf("%d days, %d builds", len(u.Builds), len(u.CountedBuilds))
	}
	for i, day := range u.Builds {
		if want := start.AddDate(0, 0, 40-kibashipv1.UsageDays+i).Format(time.DateOnly); day.Date != want || day.Failed != 5 {
			t.Errorf("day %d is %+v, want %s", i, day, want)
		}
	}
	if seconds := (Build{Started: start, Ended: start.Add(-time.Hour)}).Seconds(); seconds != 0 {
		t.Errorf("a build of %d seconds", seconds)
	}
}

func TestADayIsCountedToTheSecond(t *testing.T) {
	var u kibashipv1.ProjectUsage
	steps := []struct {
		after   time.Duration
		current Now
	}{
		{0, Now{Applications: 1, Asked: newList("cpu", "500m", "memory", "1Gi")}},
		{time.Hour, Now{Applications: 3, Deployments: 1, Asked: newList("cpu", "2")}},
		{90 * time.Minute, Now{Applications: 2, Deployments: 1, Asked: newList("cpu", "2")}},
		{26 * time.Hour, Now{}}, // a day has passed in between, and the operator may have been away
		{50 * time.Hour, Now{}},
	}
	for _, step := range steps {
		Update(&u, step.current, start.Add(step.after).Add(300*time.Millisecond))
		u = stored(t, u)
		before := *u.DeepCopy()
		Update(&u, step.current, start.Add(step.after).Add(900*time.Millisecond))
		if !equality.Semantic.DeepEqual(u, before) {
			t.Errorf("after %s: a second time changes %+v to %+v", step.after, before, u)
		}
	}
	want := []kibashipv1.UsageDay{
		{Date: "2026-11-29", Applications: 3, Deployments: 1, AskedSeconds: newList("cpu", "9000", "memory", "3600Gi")},
		{Date: "2026-11-30", Applications: 2, Deployments: 1, AskedSeconds: newList("cpu", "172800")},
	}
	if len(u.Days) == 3 && u.Days[2].Date == "2026-12-01" { // until midnight exactly
		u.Days = u.Days[:2]
	}
	if !equality.Semantic.DeepEqual(u.Days, want) {
		t.Errorf("the days are %+v, want %+v", u.Days, want)
	}
	if u.CountedUntil != nil || RequeueAfter(&u, "p", start) != 0 {
		t.Error("an empty Project is still counted")
	}
}

func TestAClockMayGoBackAndAnOperatorBeAway(t *testing.T) {
	var u kibashipv1.ProjectUsage
	one := Now{Applications: 1, Asked: newList("cpu", "1")}
	Update(&u, one, start)
	Update(&u, Now{Applications: 2, Asked: newList("cpu", "2")}, start.Add(-time.Hour))
	if len(u.Days) != 1 || len(u.Days[0].AskedSeconds) != 0 || !u.CountedUntil.Time.Equal(start) {
		t.Errorf("a clock that goes back counts %+v", u.Days)
	}
	Update(&u, one, start.AddDate(1, 0, 0))
	if len(u.Days) != kibashipv1.UsageDays {
		t.Errorf("a year makes %d days", len(u.Days))
	}
	if got := u.Days[10].AskedSeconds[corev1.ResourceCPU]; got.Value() != 2*86400 {
		t.Errorf("a day without the operator is %s", got.String())
	}
}

func TestTheDayIsCountedAfterMidnight(t *testing.T) {
	var u kibashipv1.ProjectUsage
	Update(&u, Now{Applications: 1}, start)
	seen := map[time.Duration]bool{}
	for _, name := range []string{"a", "b", "c", "d"} {
		after := RequeueAfter(&u, name, start)
		if after < 2*time.Hour || after > 3*time.Hour {
			t.Errorf("%s: after %s", name, after)
		}
		seen[after] = true
	}
	if len(seen) < 3 {
		t.Error("all Projects are counted in the same second")
	}
	if after := RequeueAfter(&u, "a", start.AddDate(0, 0, 2)); after <= 0 {
		t.Errorf("a day that is over is counted after %s", after)
	}
}

func TestApplicationsAreAddedUp(t *testing.T) {
	sum := corev1.ResourceList{}
	Sum(sum, kibashipv1.Limits{CPU: "0.5", Memory: "512Mi"}, 1)
	Sum(sum, kibashipv1.Limits{CPU: "2", Storage: "20Gi"}, 3)
	if want := newList("cpu", "6500m", "memory", "512Mi", "storage", "60Gi"); !equality.Semantic.DeepEqual(sum, want) {
		t.Errorf("the sum is %v, want %v", sum, want)
	}
	// A hundred terabytes for a day.
	if total := multiplied(nil, newList("storage", "100Ti"), 86400)["storage"]; total.String() != "8640000Ti" {
		t.Errorf("a large amount is %s", total.String())
	}
}
