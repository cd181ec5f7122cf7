package reconcile

import (
	"testing"
	"time"
)

func TestTimesAreFractionsOfASecond(t *testing.T) {
	created := time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	ms := func(n int) time.Time { return created.Add(time.Duration(n) * time.Millisecond) }
	for name, tc := range map[string]struct {
		start, now time.Time
		want       time.Duration
	}{
		"started immediately":                {ms(300), ms(650), 350 * time.Millisecond},
		"ready in the next second":           {ms(900), ms(1200), 300 * time.Millisecond},
		"started at the start of a second":   {ms(1000), ms(1400), 900 * time.Millisecond},
		"waited for long":                    {ms(300_000), ms(301_250), 300*time.Second + 750*time.Millisecond},
		"the operator's clock is behind":     {ms(-9000), ms(-8650), 350 * time.Millisecond},
		"the next replica's clock is behind": {ms(300), ms(-2000), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ElapsedSinceCreation(created, tc.start, tc.now); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
