package prepull

import (
	"time"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// stage is where the time of a Challenge's images stands.
type stage int

const (
	// never: they are not pulled ahead.
	never stage = iota
	// later: they are pulled from a time on.
	later
	// open: they are pulled now.
	open
	// over: players see the Challenge. Started pulls end, and no pull starts.
	over
)

// window is when the images of a Challenge are pulled ahead.
type window struct {
	Stage stage
	// From and Until bound it; both are zero where the Challenge asks for its images at any time.
	From, Until time.Time
}

// computeWindow returns the window of a Challenge at a time. wanted: a platform asks for its images.
func computeWindow(c *bergv1.Challenge, wanted bool, lead time.Duration, now time.Time) window {
	if c.DeletionTimestamp != nil {
		return window{}
	}
	if c.Spec.Prepull || wanted {
		return window{Stage: open}
	}
	shown, err := time.Parse(time.RFC3339, c.Spec.HideUntil)
	if err != nil {
		return window{} // it is not hidden
	}
	w := window{Stage: open, From: shown.Add(-lead), Until: shown}
	switch {
	case !now.Before(shown):
		w.Stage = over
	case now.Before(w.From):
		w.Stage = later
	}
	return w
}

// untilChange is how long it is until a window enters another stage; zero for never.
func (w window) untilChange(now time.Time) time.Duration {
	switch {
	case w.Stage == later:
		return w.From.Sub(now)
	case w.Stage == open && !w.Until.IsZero():
		return w.Until.Sub(now)
	default:
		return 0
	}
}
