package check

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestForHowLongAResultIsLate(t *testing.T) {
	hourly := func(c *bergv1.ChallengeCheck) { solved(c); c.Spec.Schedule.Every = "1h" } // due at one o'clock
	runs := func(begun, ended time.Duration) func(*bergv1.ChallengeCheck) {
		return func(c *bergv1.ChallengeCheck) {
			c.Status.Run = &bergv1.CheckRun{StartedAt: atNoon(begun)}
			if ended > 0 {
				c.Status.Run.FinishedAt = atPtr(ended)
			}
		}
	}
	suspend := func(c *bergv1.ChallengeCheck) { c.Spec.Suspend = true }
	for name, tc := range map[string]struct {
		check     *bergv1.ChallengeCheck
		challenge *bergv1.Challenge
		want      time.Duration
	}{
		"not due":        {checkOf(solved), challengeOf(), 0},
		"due, and waits": {checkOf(hourly), challengeOf(), time.Hour},
		"never checked":  {checkOf(), challengeOf(), 3 * time.Hour},
		"never checked, the Challenge is missing": {checkOf(), nil, 3 * time.Hour},
		"suspended":           {checkOf(hourly, suspend), challengeOf(), 0},
		"it is being deleted": {checkOf(hourly, func(c *bergv1.ChallengeCheck) { c.DeletionTimestamp = atPtr(0) }), challengeOf(), 0},
		"broken off a while ago, and again": {checkOf(hourly, func(c *bergv1.ChallengeCheck) {
			c.Status.RetryAt, c.Status.NextRunAt = atPtr(121*time.Minute), atPtr(121*time.Minute)
		}), challengeOf(), time.Hour},
		"it is made, after it had to wait":     {checkOf(hourly, runs(115*time.Minute, 0)), challengeOf(), 55 * time.Minute},
		"it is made in time":                   {checkOf(hourly, runs(time.Hour, 0), func(c *bergv1.ChallengeCheck) { c.Spec.Timeout = "1h" }), challengeOf(), 0},
		"it is made for too long":              {checkOf(hourly, runs(time.Hour, 0)), challengeOf(), time.Hour},
		"it was broken off, and is taken away": {checkOf(hourly, runs(115*time.Minute, 116*time.Minute)), challengeOf(), time.Hour},
		"edited just now":                      {checkOf(solved), challengeOf(func(c *bergv1.Challenge) { c.Generation++ }), 0},
		"edited just now, and it is made":      {checkOf(solved, runs(119*time.Minute, 0)), challengeOf(func(c *bergv1.Challenge) { c.Generation++ }), 0},
	} {
		var late lateness
		challenges := map[types.UID]*bergv1.Challenge{tc.check.UID: tc.challenge}
		if got := late.maxDelay([]bergv1.ChallengeCheck{*tc.check}, challenges, noon.Add(2*time.Hour)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// What a status does not tell counts from when it was seen.
func TestLatenessOfWhatWasChanged(t *testing.T) {
	var late lateness
	c, challenge := checkOf(solved), challengeOf()
	is := func(step string, at, want time.Duration) {
		t.Helper()
		if got := late.maxDelay([]bergv1.ChallengeCheck{*c}, map[types.UID]*bergv1.Challenge{c.UID: challenge}, noon.Add(at)); got != want {
			t.Errorf("%s: %s, want %s", step, got, want)
		}
	}
	is("nothing is due", 5*time.Hour, 0)
	challenge.Generation++
	is("edited", 6*time.Hour, 0)
	challenge.Generation++
	is("edited again", 7*time.Hour, time.Hour)
	c.Status.Run = &bergv1.CheckRun{StartedAt: atNoon(7*time.Hour + time.Minute)}
	is("it is made", 7*time.Hour+2*time.Minute, time.Hour+time.Minute)
	c.Status.Run.FinishedAt, c.Status.RetryAt = atPtr(7*time.Hour+3*time.Minute), atPtr(7*time.Hour+4*time.Minute)
	is("it was broken off", 8*time.Hour, 2*time.Hour)
	c.Spec.Suspend = true
	is("suspended", 9*time.Hour, 0)
	c.Spec.Suspend = false
	is("wanted again", 9*time.Hour+time.Minute, time.Minute)
	c.Status.Run = nil
	c.Status.LastResult.StartedAt, c.Status.LastResult.FinishedAt = atNoon(9*time.Hour), atPtr(10*time.Hour)
	c.Status.LastResult.ChallengeGeneration = challenge.Generation
	is("checked", 11*time.Hour, 0)
	challenge.Generation++
	is("edited after a result", 12*time.Hour, 0)
}
