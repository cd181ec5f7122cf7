package check

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
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
		got := turn(tc.all, "me", tc.limit)
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
		if got := waitsForRoom(player(tc.change)); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestMayUse(t *testing.T) {
	for name, tc := range map[string]struct {
		policy   config.RefPolicy
		from, of string
		want     bool
	}{
		"any":                      {config.RefAny, "a", "b", true},
		"the configured one":       {config.RefConfiguredNamespace, "a", "berg", true},
		"not the configured one":   {config.RefConfiguredNamespace, "a", "a", false},
		"the same":                 {config.RefSameNamespace, "a", "a", true},
		"not the same, configured": {config.RefSameNamespace, "a", "berg", false},
	} {
		if got := mayUse(config.Challenge{Namespace: "berg", RefPolicy: tc.policy}, tc.from, tc.of); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
