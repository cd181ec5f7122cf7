package challengeinstance

import (
	"testing"
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

func TestExpiryMoves(t *testing.T) {
	r := &Reconciler{Config: config.Berg{Challenge: config.Challenge{Timeout: 2 * time.Hour, MaxLifetime: 3 * time.Hour}}}
	for name, tc := range map[string]struct {
		before, after *bergv1.ChallengeInstance
		want          bool
	}{
		"nothing":       {testInstance(started), testInstance(started), false},
		"ready":         {testInstance(started), testInstance(wasReady), false},
		"started":       {testInstance(), testInstance(started), true},
		"extended":      {testInstance(started), testInstance(started, timeout("150m")), true},
		"at the cap":    {testInstance(started, timeout("3h")), testInstance(started, timeout("9h")), false},
		"frozen":        {testInstance(started), testInstance(started, isFrozen), true},
		"unfrozen":      {testInstance(started, isFrozen), testInstance(started), true},
		"asked to end":  {testInstance(), testInstance(func(i *bergv1.ChallengeInstance) { i.Spec.TerminationReason = bergv1.TerminationAdmin }), true},
		"other wording": {testInstance(started), testInstance(started, timeout("120m")), false},
		"other default": {testInstance(started), testInstance(started, pinnedDefault("1h")), true},
		"its own stays": {testInstance(started, timeout("1h")), testInstance(started, timeout("1h"), pinnedDefault("90m")), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := r.changesExpiry(tc.before, tc.after); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
