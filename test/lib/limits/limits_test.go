package limits

import (
	"testing"
	"time"
)

func TestScaled(t *testing.T) {
	for scale, want := range map[string]time.Duration{"": 4 * time.Second, "1": 4 * time.Second, "2.5": 10 * time.Second} {
		t.Setenv("TEST_TIME_SCALE", scale)
		if got := Scaled(4 * time.Second); got != want {
			t.Errorf("%q: %s, want %s", scale, got, want)
		}
	}
	for _, scale := range []string{"0", "-1", "fast"} {
		t.Setenv("TEST_TIME_SCALE", scale)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is accepted", scale)
				}
			}()
			Scaled(time.Second)
		}()
	}
}
