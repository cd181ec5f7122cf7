package precedence_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bergctf/berg-operator/internal/kit/precedence"
)

func TestNothingWaitsWhenNothingIsUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p precedence.Precedence
		p.Take()()
		if waited := giveWay(t.Context(), &p, time.Hour); waited != 0 {
			t.Errorf("waited for %s", waited)
		}
	})
}

func TestWhatCanWaitGoesAfterTheLastUrgentWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p precedence.Precedence
		for _, took := range []time.Duration{3 * time.Second, time.Second, 2 * time.Second} {
			time.AfterFunc(took, p.Take())
		}
		if waited := giveWay(t.Context(), &p, time.Hour); waited != 3*time.Second {
			t.Errorf("waited for %s", waited)
		}
	})
}

func TestToBeDoneTwiceCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p precedence.Precedence
		done, other := p.Take(), p.Take()
		done()
		done()
		time.AfterFunc(time.Second, other)
		if waited := giveWay(t.Context(), &p, time.Hour); waited != time.Second {
			t.Errorf("waited for %s", waited)
		}
	})
}

func TestNothingWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p precedence.Precedence
		defer p.Take()()
		if waited := giveWay(t.Context(), &p, time.Minute); waited != time.Minute {
			t.Errorf("waited for %s", waited)
		}
		if waited := giveWay(t.Context(), &p, -time.Second); waited != 0 {
			t.Errorf("waited for %s after the time was over", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if waited := giveWay(ctx, &p, time.Minute); waited != time.Second {
			t.Errorf("waited for %s with a context of a second", waited)
		}
	})
}

// giveWay returns how long something waits that can.
func giveWay(ctx context.Context, p *precedence.Precedence, longest time.Duration) time.Duration {
	began := time.Now()
	p.GiveWay(ctx, longest)
	return time.Since(began)
}
