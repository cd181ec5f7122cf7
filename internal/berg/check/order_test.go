package check

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

func TestTurn(t *testing.T) {
	of := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "berg", Name: name} }
	runs := func(uid types.UID, challenge string) contender {
		return contender{UID: uid, Challenge: of(challenge), Running: true}
	}
	waits := func(uid types.UID, challenge string, since time.Duration) contender {
		return contender{UID: uid, Challenge: of(challenge), Due: noon.Add(-since)}
	}
	idle := contender{UID: "idle", Challenge: of("web")}
	for name, tc := range map[string]struct {
		all   []contender
		limit int
		want  string
	}{
		"alone":                              {[]contender{idle, waits("me", "web", 1)}, 1, ""},
		"all places taken":                   {[]contender{runs("a", "pwn"), waits("me", "web", 1)}, 1, "CHECK_CONCURRENCY (1)"},
		"a place is free":                    {[]contender{runs("a", "pwn"), waits("me", "web", 1)}, 2, ""},
		"another has waited longer":          {[]contender{waits("me", "web", 1), waits("a", "pwn", 2)}, 1, "CHECK_CONCURRENCY (1)"},
		"another has waited as long":         {[]contender{waits("me", "web", 1), waits("a", "pwn", 1)}, 1, "CHECK_CONCURRENCY (1)"},
		"another has waited less":            {[]contender{waits("a", "pwn", 1), waits("me", "web", 2)}, 1, ""},
		"both have room":                     {[]contender{waits("me", "web", 1), waits("a", "pwn", 2)}, 2, ""},
		"its Challenge is being checked":     {[]contender{runs("a", "web"), waits("me", "web", 1)}, 9, "Another check of this Challenge"},
		"its Challenge is checked before":    {[]contender{waits("a", "web", 2), waits("me", "web", 1)}, 9, "Another check of this Challenge"},
		"who cannot go takes no place":       {[]contender{runs("a", "pwn"), waits("b", "pwn", 9), waits("me", "web", 1)}, 2, ""},
		"more run than a lower limit allows": {[]contender{runs("a", "a"), runs("b", "b"), waits("me", "web", 1)}, 1, "CHECK_CONCURRENCY (1)"},
	} {
		got := waitReason(tc.all, "me", tc.limit)
		if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestWaitsForRoom(t *testing.T) {
	player := func(modify func(*bergv1.ChallengeInstance)) *bergv1.ChallengeInstance {
		i := &bergv1.ChallengeInstance{}
		i.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionPodsReady, Status: metav1.ConditionFalse, Reason: unschedulable}}
		modify(i)
		return i
	}
	for name, tc := range map[string]struct {
		change func(*bergv1.ChallengeInstance)
		want   bool
	}{
		"no node has room":      {func(*bergv1.ChallengeInstance) {}, true},
		"it is that of a check": {func(i *bergv1.ChallengeInstance) { i.Labels = map[string]string{bergv1.LabelCheck: "web"} }, false},
		"it is being deleted":   {func(i *bergv1.ChallengeInstance) { i.DeletionTimestamp = atPtr(0) }, false},
		"it ran before":         {func(i *bergv1.ChallengeInstance) { i.Status.ReadyAt = atPtr(0) }, false},
		"its image is pulled":   {func(i *bergv1.ChallengeInstance) { i.Status.Conditions[0].Reason = "ImagePullBackOff" }, false},
		"it is new":             {func(i *bergv1.ChallengeInstance) { i.Status.Conditions = nil }, false},
		"it is in the queue": {func(i *bergv1.ChallengeInstance) {
			i.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionAdmitted, Status: metav1.ConditionFalse, Reason: bergv1.ReasonQueued}}
		}, true},
	} {
		if got := waitsForCapacity(player(tc.change)); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestWaitingPlayers(t *testing.T) {
	waits := func(name string, created, since time.Duration) bergv1.ChallengeInstance {
		i := bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name, CreationTimestamp: atNoon(created)}}
		i.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionPodsReady, Status: metav1.ConditionFalse, Reason: unschedulable, LastTransitionTime: atNoon(since)}}
		return i
	}
	queued := func(name string, created time.Duration) bergv1.ChallengeInstance {
		i := waits(name, created, created)
		i.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionAdmitted, Status: metav1.ConditionFalse, Reason: bergv1.ReasonQueued}}
		return i
	}
	called := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "berg", Name: name} }
	none := types.NamespacedName{}
	runs := waits("runs", 0, 0)
	runs.Status.ReadyAt = atPtr(0)
	leftQueue := waits("left", -time.Hour, -time.Hour)
	leftQueue.Status.StartedAt = atPtr(-time.Minute)
	for name, tc := range map[string]struct {
		all    []bergv1.ChallengeInstance
		before types.NamespacedName
		want   players
	}{
		"no player":           {[]bergv1.ChallengeInstance{runs}, called("gone"), players{}},
		"one":                 {[]bergv1.ChallengeInstance{runs, waits("a", 0, -time.Minute)}, none, players{true, called("a"), noon.Add(9 * time.Minute)}},
		"one, too long":       {[]bergv1.ChallengeInstance{waits("a", 0, -maxWait)}, called("a"), players{}},
		"one of two too long": {[]bergv1.ChallengeInstance{waits("a", 9, -maxWait), waits("b", 0, 0)}, called("a"), players{true, called("b"), noon.Add(maxWait)}},
		"the newest":          {[]bergv1.ChallengeInstance{waits("a", 1, 0), waits("b", 2, -time.Minute), waits("c", 0, 0)}, called("gone"), players{true, called("b"), noon.Add(maxWait)}},
		"the one of before":   {[]bergv1.ChallengeInstance{waits("a", 1, 0), waits("b", 2, 0)}, called("a"), players{true, called("a"), noon.Add(maxWait)}},
		"for hours in queue":  {[]bergv1.ChallengeInstance{queued("a", -3*time.Hour), waits("b", -4*time.Hour, 0)}, none, players{true, called("a"), time.Time{}}},
		"left the queue":      {[]bergv1.ChallengeInstance{leftQueue}, none, players{true, called("left"), noon.Add(9 * time.Minute)}},
	} {
		if got := waitingPlayers(tc.all, tc.before, noon); got.Wait != tc.want.Wait || got.Named != tc.want.Named || !got.Until.Equal(tc.want.Until) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// One whose beginning is refused is not the first in line again and again.
func TestWhoIsRefusedStandsBack(t *testing.T) {
	var all refusals
	me, other := checkOf(), checkOf(func(c *bergv1.ChallengeCheck) { c.UID = "other" })
	all.note(me, noon)
	if until := all.holds(me, noon.Add(retryDelay-1)); !until.Equal(noon.Add(retryDelay)) || !all.holds(other, noon).IsZero() {
		t.Errorf("held until %s", until)
	}
	all.note(other, noon.Add(retryDelay))
	if !all.holds(me, noon.Add(retryDelay)).IsZero() || len(all.until) != 1 {
		t.Errorf("it is still held: %v", all.until)
	}
	o := Observed{Check: me, Challenge: challengeOf(), RefusedUntil: noon.Add(time.Minute)}
	reason, message := waiting(o, 1, noon)
	if reason != bergv1.CheckReasonQueued || !strings.Contains(message, "refused") {
		t.Errorf("%s: %s", reason, message)
	}
}

// An API server that has just started refuses everything for a moment, which says nothing of the check.
func TestARefusalMustLast(t *testing.T) {
	kind := schema.GroupResource{Group: "batch", Resource: "jobs"}
	forbidden, lost := apierrors.NewForbidden(kind, "solver", nil), errors.New("connection refused")
	type look struct {
		at      time.Duration
		failure error
	}
	for name, tc := range map[string]struct {
		looks []look
		over  bool
	}{
		"once":                 {[]look{{0, forbidden}}, false},
		"for a moment":         {[]look{{0, forbidden}, {maxRefusal - 1, forbidden}}, false},
		"it continues":         {[]look{{0, forbidden}, {time.Second, forbidden}, {maxRefusal, forbidden}}, true},
		"without an answer":    {[]look{{0, forbidden}, {time.Second, lost}, {maxRefusal, forbidden}}, true},
		"accepted in between":  {[]look{{0, forbidden}, {time.Second, nil}, {maxRefusal, forbidden}}, false},
		"no answer at all":     {[]look{{0, lost}, {time.Hour, lost}}, false},
		"it has another owner": {[]look{{0, &ownership.RefusedError{}}}, true},
	} {
		var p refusedBuilds
		c := checkOf(func(c *bergv1.ChallengeCheck) { c.Status.Run = &bergv1.CheckRun{StartedAt: atNoon(0)} })
		over := false
		for _, l := range tc.looks {
			over = p.over(c, l.failure, noon.Add(l.at))
		}
		if over != tc.over {
			t.Errorf("%s: it is the result: %t", name, over)
		}
	}
	var p refusedBuilds
	c := checkOf(func(c *bergv1.ChallengeCheck) { c.Status.Run = &bergv1.CheckRun{StartedAt: atNoon(0)} })
	p.over(c, forbidden, noon)
	c.Status.Run.StartedAt = atNoon(time.Hour)
	if p.over(c, forbidden, noon.Add(time.Hour)) {
		t.Error("the refusal of a former check counts")
	}
	if p.forget(c); len(p.since) > 0 {
		t.Errorf("%v is remembered of one that is gone", p.since)
	}
}

// A check that waits for time alone is requeued at that time.
func TestUntilNext(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Observed)
		want   time.Duration
	}{
		"idle":                      {func(o *Observed) { solved(o.Check); o.Check.Spec.Schedule.Every = "1h" }, time.Hour},
		"nothing to come":           {func(o *Observed) { solved(o.Check) }, 0},
		"its beginning was refused": {func(o *Observed) { o.RefusedUntil = noon.Add(time.Second) }, time.Second},
		"no node for a player":      {func(o *Observed) { o.Players = players{Wait: true, Until: noon.Add(time.Minute)} }, time.Minute},
		"players in the queue":      {func(o *Observed) { o.Players = players{Wait: true} }, 0},
		"another is made":           {func(o *Observed) { o.Contenders = append(o.Contenders, contender{UID: "a", Running: true}) }, 0},
	} {
		o := Observed{Check: checkOf(), Challenge: challengeOf()}
		o.Contenders = []contender{{UID: o.Check.UID, Due: noon}}
		tc.change(&o)
		reason, _ := waiting(o, 1, noon)
		if got := untilNext(o, reason, noon); got != tc.want {
			t.Errorf("%s, %s: %s, want %s", name, reason, got, tc.want)
		}
	}
}
