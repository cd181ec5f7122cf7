package prepull

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bergctf/berg-operator/internal/kit/backoff"
)

// maxAttempts is how often a pull is tried for one version of a Challenge.
const maxAttempts = 6

// The delays after failed pulls of a target, and after rejected writes of a status.
var (
	pullDelays   = backoff.Exponential{First: 30 * time.Second, Max: 16 * time.Minute}
	statusDelays = backoff.Exponential{First: 5 * time.Second, Max: 10 * time.Minute}
)

// store holds facts about pulls that no object records.
// Only the controller with its single worker uses it, so it needs no lock.
type store struct {
	// done are the targets that were pulled. The value reports whether the node listed the image since.
	done map[Target]bool
	// failed are the targets of a Challenge that were not.
	failed map[attempt]failure
	// prepared are the namespaces in which pulls can begin, with the name of the copy of the pull
	// secret in each; "" where there is none.
	prepared map[types.UID]string
	// created are the namespaces, by their UID, that this process has created: others can create one with the name and the
	// annotation that show whose it is, and would get the pull secret.
	created map[types.UID]bool
	// reportedAt is when the progress of a Challenge was last written to its status.
	reportedAt map[types.UID]time.Time
	// refused are the Challenges whose status the API server refused.
	refused map[types.UID]refusal
}

// attempt names the Challenge too: another one tries for itself.
type attempt struct {
	Challenge types.UID
	Target    Target
}

// refusal is how often the status of a version of a Challenge was refused, and when it last was.
// It may be taken later: an API server that has just started knows of no rights, and a missing one
// may be granted.
type refusal struct {
	Generation int64
	Count      int
	At         time.Time
}

// again is when the status is written again.
func (r refusal) again() time.Time { return r.At.Add(statusDelays.After(r.Count)) }

// failure is how often a target has failed, and why it last did.
type failure struct {
	// Generation of the Challenge: another one is tried from the beginning.
	Generation int64
	Count      int
	At         time.Time
	Message    string
	// Subject is the UID of the failed object, which counts once.
	Subject types.UID
}

func newStore() *store {
	return &store{
		done: map[Target]bool{}, failed: map[attempt]failure{}, prepared: map[types.UID]string{}, created: map[types.UID]bool{},
		reportedAt: map[types.UID]time.Time{}, refused: map[types.UID]refusal{},
	}
}

// pulled records that an image is on its node, and reports whether this is new.
func (l *store) pulled(t Target) bool {
	if l.isDone(t) {
		return false
	}
	l.done[t] = false
	return true
}

// fail records that a pull has failed, and reports whether this is new. The UID of the Deployment makes a failure count once,
// although several events may show it before the Deployment is gone.
func (l *store) fail(a attempt, generation int64, registrationUID types.UID, message string, now time.Time) bool {
	f := l.failed[a]
	if f.Subject == registrationUID && registrationUID != "" {
		return false
	}
	if f.Generation != generation {
		f = failure{Generation: generation}
	}
	f.Count++
	f.At, f.Message, f.Subject = now, message, registrationUID
	l.failed[a] = f
	return true
}

// refuse records that the API server does not take the status of a Challenge.
func (l *store) refuse(challenge types.UID, generation int64, now time.Time) {
	r := l.refused[challenge]
	if r.Generation != generation {
		r = refusal{Generation: generation}
	}
	r.Count++
	r.At = now
	l.refused[challenge] = r
}

// findFailure returns the recorded failure of a target, for a version of a Challenge.
func (l *store) findFailure(a attempt, generation int64) (failure, bool) {
	f, ok := l.failed[a]
	return f, ok && f.Generation == generation
}

// again is when a target is tried again; ok is false if it is not.
func (f failure) again() (retry time.Time, ok bool) {
	return f.At.Add(pullDelays.After(f.Count)), f.Count < maxAttempts
}

// update adds the images that nodes list to the store, and forgets targets that no Challenge needs any more.
func (l *store) update(o Observed, all []Desired, always bool) {
	wanted, live := map[Target]bool{}, map[types.UID]*Desired{}
	for i := range all {
		live[all[i].Challenge.UID] = &all[i]
		for _, t := range all[i].Targets {
			wanted[t] = true
		}
	}
	l.compare(o, wanted, always)
	l.forget(o, wanted, live)
}

// compare notes which of the wanted images nodes list, and which they have removed again. An image that was listed and no longer
// is was removed by the kubelet. That can only be seen on a node that lists all of its images.
func (l *store) compare(o Observed, wanted map[Target]bool, always bool) {
	lists := map[types.UID]map[string]bool{}
	for uid, n := range o.Nodes { // once: targets are many
		lists[uid] = listing(n)
	}
	for t := range wanted {
		listed := lists[t.Node][fullName(t.Image)]
		seen, known := l.done[t]
		switch {
		case listed && (known || !always && t.RuntimeClass == ""):
			l.done[t] = true
		case !listed && known && seen && listsAll(o.Nodes[t.Node]):
			delete(l.done, t) // the node needed the space
		}
	}
}

// forget keeps failures only while the pull is wanted and its window is open, so that a later window tries again.
func (l *store) forget(o Observed, wanted map[Target]bool, live map[types.UID]*Desired) {
	maps.DeleteFunc(l.done, func(t Target, _ bool) bool { return !wanted[t] })
	maps.DeleteFunc(l.failed, func(a attempt, _ failure) bool {
		_, succeeded := l.done[a.Target]
		w := live[a.Challenge]
		return succeeded || w == nil || w.Window.Stage != open || !wanted[a.Target]
	})
	namespaces := map[types.UID]bool{}
	for _, r := range o.Namespaces {
		namespaces[r.UID] = true
	}
	maps.DeleteFunc(l.prepared, func(uid types.UID, _ string) bool { return !namespaces[uid] })
	maps.DeleteFunc(l.created, func(uid types.UID, _ bool) bool { return !namespaces[uid] })
	maps.DeleteFunc(l.reportedAt, func(uid types.UID, _ time.Time) bool { return live[uid] == nil })
	maps.DeleteFunc(l.refused, func(uid types.UID, _ refusal) bool { return live[uid] == nil })
}

// isDone reports whether an image is on its node.
func (l *store) isDone(t Target) bool {
	_, ok := l.done[t]
	return ok
}
