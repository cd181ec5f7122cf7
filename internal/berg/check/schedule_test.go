package check

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

var noon = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

func atNoon(d time.Duration) metav1.Time { return metav1.Time{Time: noon.Add(d)} }

func atPtr(d time.Duration) *metav1.Time { t := atNoon(d); return &t }

// checkOf is one of generation 2 that was created an hour before noon.
func checkOf(modify ...func(*bergv1.ChallengeCheck)) *bergv1.ChallengeCheck {
	c := &bergv1.ChallengeCheck{ObjectMeta: metav1.ObjectMeta{
		Namespace: "berg", Name: "web", UID: "5f0c3e64-0000-4000-8000-000000000001", Generation: 2, CreationTimestamp: atNoon(-time.Hour),
	}}
	c.Spec.ChallengeRef.Name, c.Spec.Solver.Image, c.Spec.Timeout = "web", "example.com/solver:1", "2m"
	for _, m := range modify {
		m(c)
	}
	return c
}

// solvedAt says that the last check began at noon, and took a minute.
func solved(c *bergv1.ChallengeCheck) {
	c.Status.LastResult = &bergv1.CheckResult{Result: bergv1.CheckSolved, CheckRun: bergv1.CheckRun{
		StartedAt: atNoon(0), FinishedAt: atPtr(time.Minute), Generation: 2, ChallengeGeneration: 3, ChallengeUID: "u",
	}}
}

func challengeOf(modify ...func(*bergv1.Challenge)) *bergv1.Challenge {
	c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "web", UID: "u", Generation: 3}}
	c.Spec.Containers = []bergv1.Container{{
		Hostname: "web", Image: "example.com/web:1",
		Ports:       []bergv1.Port{{Name: "web", Port: 8080, Type: bergv1.PublicHTTPRoute}, {Name: "game", Port: 1337, Protocol: "udp", Type: bergv1.PublicPort}},
		DynamicFlag: &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}},
	}}
	for _, m := range modify {
		m(c)
	}
	return c
}

func TestDue(t *testing.T) {
	every := func(d string) func(*bergv1.ChallengeCheck) {
		return func(c *bergv1.ChallengeCheck) { c.Spec.Schedule.Every = d }
	}
	before := func(d string) func(*bergv1.ChallengeCheck) {
		return func(c *bergv1.ChallengeCheck) { c.Spec.Schedule.BeforeHideUntil = d }
	}
	hidden := func(text string) *bergv1.Challenge {
		return challengeOf(func(c *bergv1.Challenge) { c.Spec.HideUntil = text })
	}
	suspend := func(c *bergv1.ChallengeCheck) { c.Spec.Suspend = true }
	retry := func(c *bergv1.ChallengeCheck) { c.Status.RetryAt = atPtr(5 * time.Minute) }
	for name, tc := range map[string]struct {
		check     *bergv1.ChallengeCheck
		challenge *bergv1.Challenge
		want      time.Time
	}{
		"never checked":                      {checkOf(), challengeOf(), noon.Add(-time.Hour)},
		"never checked, suspended":           {checkOf(suspend), challengeOf(), time.Time{}},
		"never checked, broken off":          {checkOf(retry), challengeOf(), noon.Add(5 * time.Minute)},
		"checked, nothing set":               {checkOf(solved), challengeOf(), time.Time{}},
		"checked, nothing set, broken off":   {checkOf(solved, retry), challengeOf(), time.Time{}},
		"every hour":                         {checkOf(solved, every("1h")), challengeOf(), noon.Add(time.Hour)},
		"every hour, suspended":              {checkOf(solved, every("1h"), suspend), challengeOf(), time.Time{}},
		"another solver":                     {checkOf(solved, func(c *bergv1.ChallengeCheck) { c.Generation++ }), challengeOf(), noon.Add(time.Minute)},
		"the Challenge edited":               {checkOf(solved), challengeOf(func(c *bergv1.Challenge) { c.Generation++ }), noon.Add(time.Minute)},
		"the Challenge made again":           {checkOf(solved), challengeOf(func(c *bergv1.Challenge) { c.UID = "v" }), noon.Add(time.Minute)},
		"the Challenge gone":                 {checkOf(solved, every("1h")), nil, noon.Add(time.Hour)},
		"shown in two hours":                 {checkOf(solved, before("30m")), hidden("2030-01-31T14:00:00Z"), noon.Add(90 * time.Minute)},
		"shown in two hours, every hour":     {checkOf(solved, before("30m"), every("1h")), hidden("2030-01-31T14:00:00Z"), noon.Add(time.Hour)},
		"shown in an hour, every hour":       {checkOf(solved, before("30m"), every("1h")), hidden("2030-01-31T13:00:00Z"), noon.Add(30 * time.Minute)},
		"shown soon, checked for it already": {checkOf(solved, before("30m")), hidden("2030-01-31T12:20:00Z"), time.Time{}},
		"shown long ago":                     {checkOf(solved, before("30m")), hidden("2029-01-31T12:20:00Z"), time.Time{}},
		"not hidden":                         {checkOf(solved, before("30m")), hidden(""), time.Time{}},
	} {
		if got := due(tc.check, tc.challenge); !got.Equal(tc.want) {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestTimeout(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 5 * time.Minute, "90s": 90 * time.Second, "1h": time.Hour} {
		if got := timeout(checkOf(func(c *bergv1.ChallengeCheck) { c.Spec.Timeout = text })); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
