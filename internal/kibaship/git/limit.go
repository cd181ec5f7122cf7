package git

import (
	"net/http"
	"strconv"
	"time"
)

// minWait and maxWait are for how long a server may ask to be left alone: the limits of providers begin again within an hour.
const minWait, maxWait = time.Second, time.Hour

// RetryAfter returns for how long a server asks to be left alone with its refusal, 0 if it does not ask. GitHub may only say when its limit
// begins again, and answers 403 to too many requests:
// https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api, https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/
func RetryAfter(answer *http.Response, now time.Time) time.Duration {
	switch answer.StatusCode {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		return 0
	}
	bound := func(wait time.Duration) time.Duration { return min(max(wait, minWait), maxWait) }
	after := answer.Header.Get("Retry-After")
	if moment, err := http.ParseTime(after); err == nil {
		return bound(moment.Sub(now))
	}
	if seconds, err := strconv.Atoi(after); err == nil {
		return bound(time.Duration(min(seconds, int(maxWait.Seconds()))) * time.Second)
	}
	for _, prefix := range []string{"X-Ratelimit-", "Ratelimit-"} {
		reset, err := strconv.ParseInt(answer.Header.Get(prefix+"Reset"), 10, 64)
		if answer.Header.Get(prefix+"Remaining") == "0" && err == nil {
			return bound(time.Unix(reset, 0).Sub(now))
		}
	}
	return 0
}
