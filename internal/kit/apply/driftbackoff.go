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
	// promptWrites is how many writes of one object are never throttled: more than
	// an administrator causes in a row.
	promptWrites = 10
	// forgetAfter is how long an object must be unmodified to be repaired promptly
	// again. It is longer than the maximum delay.
	forgetAfter = 10 * time.Minute
	// maxRemembered limits the memory to two megabytes: the oldest write is forgotten
	// first, and a contest is always recent.
	maxRemembered = 4096
	// maxAccepted is the maximum number of remembered results of admission, each with some 200 bytes. A forgotten
	// result costs a read of the object, and no write.
	maxAccepted = 1 << 15
)

// delays are the delays between the writes after the prompt ones.
var delays = backoff.Exponential{First: time.Second, Max: 5 * time.Minute}

// DriftBackoff throttles repairs of an object that another controller, or the API
// server, changes each time. Its state is in memory: after a restart the first writes
// are prompt again.
//
// It counts writes of an object that others have changed or deleted. It does not count
// writes for another custom resource, even of the same name; writes of another plan if
// the object is as it was last written; and writes after the operator itself has deleted
// the object because it was not wanted. These are never throttled, nor are writes of network
// policies.
type DriftBackoff struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	// writes holds a *history for each object written lately.
	writes *lru.Cache
	// accepted holds, by UID, the checksum of the object that the API server stored for a plan.
	accepted *lru.Cache
}

type history struct {
	// writes counts the writes that others have made necessary, and the first one. last is the time of the latest.
	writes  int
	last    time.Time
	writers string
	// plan is the checksum of the last write.
	plan string
}

// object is the key of the history. Names repeat with the next custom resource of a name; its
// UID does not.
type object struct {
	kind  schema.GroupKind
	name  types.NamespacedName
	owner types.UID
}

// write is one write of an object.
type write struct {
	object
	// plan is the checksum of the plan that is written.
	plan string
	// rollout: only the plan has changed.
	rollout bool
}

// NewDriftBackoff returns a DriftBackoff without history.
func NewDriftBackoff(c clock.PassiveClock) *DriftBackoff {
	return &DriftBackoff{clock: c, writes: lru.New(maxRemembered), accepted: lru.New(maxAccepted)}
}

// throttled returns a *ContestedError while an object must not be written again. The
// delays double from one second to five minutes.
func (r *DriftBackoff) throttled(to write) error {
	if r == nil || to.rollout || confining[to.kind] {
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
	return &ContestedError{Kind: to.kind.Kind, Name: to.name.Name, By: h.writers}
}

// wrote records a write. by names the managers that made it necessary, if they are known. A write for another plan of an
// unmodified object counts nothing, but its plan is recorded: the next comparison needs it.
func (r *DriftBackoff) wrote(to write, cause []string) {
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
	// A deletion names no manager. The last known one stays in the message.
	if len(cause) > 0 {
		h.writers = strings.Join(cause, ", ")
	}
	r.writes.Add(to.object, h)
}

// plan returns the checksum of the last write of an object, "" if it is not known.
func (r *DriftBackoff) plan(o object) string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.history(o).plan
}

// pruned forgets an object that was deleted because it was not wanted. Else its next creation, when it is wanted again, would
// count as a repair.
func (r *DriftBackoff) pruned(o object) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes.Remove(o)
}

// history returns the history of an object, empty if it was unmodified for forgetAfter.
func (r *DriftBackoff) history(o object) *history {
	if known, ok := r.writes.Get(o); ok {
		if h := known.(*history); r.clock.Since(h.last) < forgetAfter {
			return h
		}
	}
	return &history{}
}

// accept records the stored object if it differs from the written one: an admission webhook changed
// it, and would change it again. It reports whether the result differs from the last one. The checksum includes all content, and
// not the fields that differ: if an administrator later changes another field, the object differs from the accepted one and is
// repaired.
func (r *DriftBackoff) accept(desired, made client.Object) bool {
	if r == nil {
		return false
	}
	content, err := contentChecksum(made, desired)
	if err != nil {
		return false
	}
	known, ok := r.accepted.Get(made.GetUID())
	r.accepted.Add(made.GetUID(), content)
	return !ok || known.(checksum) != content
}

// accepts reports whether an object is as the API server stored it for this plan. The checksum of the plan must agree too: a new
// plan is always written once.
func (r *DriftBackoff) accepts(owner ownership.Owner, desired, live client.Object) bool {
	annotation := ChecksumAnnotation(owner.Annotation)
	if r == nil || live.GetAnnotations()[annotation] != desired.GetAnnotations()[annotation] {
		return false
	}
	known, ok := r.accepted.Get(live.GetUID())
	if !ok {
		return false
	}
	content, err := contentChecksum(live, desired)
	return err == nil && known.(checksum) == content
}

// knows reports whether the stored result for an object's plan is recorded.
func (r *DriftBackoff) knows(live client.Object) bool {
	if r == nil {
		return false
	}
	_, ok := r.accepted.Get(live.GetUID())
	return ok
}

// ContestedError says that another client changes or deletes an object after each
// repair. It is repaired again with exponential backoff.
type ContestedError struct {
	Kind, Name string
	// By names the managers that change it, from metadata.managedFields; "" if unknown.
	By string
}

func (e *ContestedError) Error() string {
	rivals := e.By
	if rivals == "" {
		rivals = "another client"
	}
	return fmt.Sprintf("%s %s keeps being modified or deleted by %s; repairing it with exponential backoff. Stop the other writer", e.Kind, e.Name, rivals)
}
