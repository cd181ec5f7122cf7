package operator

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestScrapesAreLimited(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	limits := newScrapeLimits(now)
	asked := 0
	handler := limits.before(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	ask := func(address string, times int) (accepted int) {
		before := asked
		for range times {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.RemoteAddr = address
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
		return asked - before
	}

	if got := ask("192.0.2.1:1000", 1000); got != burstOfAddress {
		t.Errorf("%d requests of one address in a burst", got)
	}
	if got := ask("192.0.2.1:2000", 10); got != 0 {
		t.Errorf("%d more from another port of that address", got)
	}
	if got := ask("[2001:db8::1]:1000", 1); got != 1 {
		t.Error("another address waits for the first")
	}
	now.SetTime(now.Now().Add(time.Second))
	if got := ask("192.0.2.1:1000", 10); got != scrapesOfAddress {
		t.Errorf("%d requests after a second", got)
	}

	accepted := 0
	for i := range 5000 {
		accepted += ask(fmt.Sprintf("10.0.%d.%d:1000", i/250, i%250), 1)
	}
	if accepted > burstOfAll {
		t.Errorf("%d requests of many addresses in a burst", accepted)
	}
	if got := limits.each.Size(); got > 1024 {
		t.Errorf("%d addresses are remembered", got)
	}
}
