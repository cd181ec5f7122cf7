package apply

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/kit/backoff"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

const (
	// promptWrites is how many writes of one object are never held back: more
	// than an administrator makes us undo in a row.
	promptWrites = 10
	// forgetting is how long an object must have been left alone to be repaired
	// promptly again. It is longer than the longest delay.
	forgetAfter = 10 * time.Minute
	// remembered bounds the memory, to two megabytes: what was written longest ago
	// is forgotten first, and a contest is always recent.
	maxRemembered = 4096
)

// delays are those between the writes after the prompt ones.
var delays = backoff.Exponential{First: time.Second, Max: 5 * time.Minute}

// DriftBackoff keeps the operator from fighting over an object with another
// controller, or with the API server, without pauses. It lives in memory: a
// restart begins with prompt writes again.
//
// It is a fight if what we wrote for a custom resource is changed or deleted by
// others and written again. It is none when the custom resource is another one,
// under whatever name; when the plan has changed and the object stands as we
// left it; and when we have deleted the object ourselves meanwhile, since it
// was not wanted. Of these there may be as many as their authors like.
type DriftBackoff struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	// writes holds a *history for each object written lately.
	writes *lru.Cache
	// accepted holds, by UID, what the API server made of a plan.
	accepted *lru.Cache
}

type history struct {
	// writes that somebody else has made necessary, and the first one.
	writes int
	last   time.Time
	by     string
	// plan is the checksum of what was written last.
	plan string
}

// object is what is fought over. Names repeat, with the owner of an instance and with the ID
// of an Environment: the UID of the custom resource does not.
type object struct {
	kind  schema.GroupKind
	name  types.NamespacedName
	owner types.UID
}

// write is one of an object.
type write struct {
	object
	// plan is the checksum of what is written.
	plan string
	// rollout: it is necessary because of the plan alone.
	rollout bool
}

// NewDriftBackoff returns a Restraint that remembers nothing yet.
func NewDriftBackoff(c clock.PassiveClock) *DriftBackoff {
	return &DriftBackoff{clock: c, writes: lru.New(maxRemembered), accepted: lru.New(maxRemembered)}
}

// held returns a *ContestedError while an object must not be written again. The
// pauses double from a second to five minutes.
func (r *DriftBackoff) throttled(to write) error {
	if r == nil || to.rollout {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.history(to.object)
	if h.writes < promptWrites {
		return nil
	}
	if r.clock.Since(h.last) >= delays.After(h.writes-promptWrites+1) {
		return nil
	}
	return &ContestedError{Kind: to.kind.Kind, Name: to.name.Name, By: h.by}
}

// wrote takes note of a write. by names who made it necessary, as far as is known.
func (r *DriftBackoff) wrote(to write, by []string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.history(to.object)
	h.plan = to.plan
	if !to.rollout {
		h.writes++
		h.last = r.clock.Now()
	}
	if len(by) > 0 {
		h.by = strings.Join(by, ", ")
	}
	r.writes.Add(to.object, h)
}

// plan returns the checksum of what was written last of an object, "" if that is not known.
func (r *DriftBackoff) plan(o object) string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.history(o).plan
}

// pruned forgets an object that we have deleted: when it is wanted again, it is new.
func (r *DriftBackoff) pruned(o object) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes.Remove(o)
}

// history returns what is known of an object, empty if it was left alone since.
func (r *DriftBackoff) history(o object) *history {
	if known, ok := r.writes.Get(o); ok {
		if h := known.(*history); r.clock.Since(h.last) < forgetAfter {
			return h
		}
	}
	return &history{}
}

// accept remembers what the API server made of a write where that is not what
// was written: admission changed it, and would change it again. It reports
// whether that is news.
func (r *DriftBackoff) accept(desired, made client.Object) bool {
	if r == nil {
		return false
	}
	content, err := contentOf(made, desired)
	if err != nil {
		return false
	}
	known, ok := r.accepted.Get(made.GetUID())
	r.accepted.Add(made.GetUID(), content)
	return !ok || known.(checksum) != content
}

// accepts reports whether an object is as the API server made it of this plan.
func (r *DriftBackoff) accepts(owner ownership.Owner, desired, live client.Object) bool {
	annotation := ChecksumAnnotation(owner.Annotation)
	if r == nil || live.GetAnnotations()[annotation] != desired.GetAnnotations()[annotation] {
		return false
	}
	known, ok := r.accepted.Get(live.GetUID())
	if !ok {
		return false
	}
	content, err := contentOf(live, desired)
	return err == nil && known.(checksum) == content
}

// ContestedError says that somebody changes or deletes an object each time that
// it was repaired. It is repaired again, with growing pauses.
type ContestedError struct {
	Kind, Name string
	// By names who changes it, as metadata.managedFields tells; "" if unknown.
	By string
}

func (e *ContestedError) Error() string {
	by := e.By
	if by == "" {
		by = "somebody"
	}
	return fmt.Sprintf("%s %s is changed or deleted again and again by %s; it is put back with growing pauses: stop whoever does it", e.Kind, e.Name, by)
}
