package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// ending is how a life is meant to end.
type ending string

const (
	expires   ending = "expires"
	isDeleted ending = "is deleted"
	asksToEnd ending = "asks to end"
	survives  ending = "survives"
)

// life is all that happens to one instance.
type life struct {
	name, owner, flag, challenge string
	// begins is when it is created, after the storm began.
	begins  time.Duration
	timeout time.Duration
	acts    []act
	ends    ending
	// taken is whether another owner has the namespace that it needs.
	taken bool

	// asked is set before a player or an administrator ends it: from then on it may
	// end at any time.
	asked atomic.Bool
}

// stays reports whether it has not been deleted and will not be.
func (l *life) stays() bool { return l.ends == survives && !l.asked.Load() }

// act is something that a player, a platform or an administrator does.
type act struct {
	after time.Duration // since the act before
	what  string
	patch string // a merge patch of the instance; "" deletes it
}

const long = 6 * time.Hour

// livesOf returns the lives that follow from a seed.
func livesOf(o options) []*life {
	chance := rand.New(rand.NewPCG(o.seed, 1))
	lives := make([]*life, o.lives)
	lasting := map[string]bool{} // owners whose namespace is not set free
	for i := range lives {
		l := &life{
			name:   fmt.Sprintf("life-%04d", i),
			owner:  randomUUID(chance),
			flag:   fmt.Sprintf("%s%d-%d}", flagPrefix, o.seed, i),
			begins: o.storm * time.Duration(i) / time.Duration(o.lives),
		}
		l.challenge, l.ends = sound[chance.IntN(len(sound))], []ending{expires, expires, isDeleted, isDeleted, asksToEnd, survives}[chance.IntN(6)]
		if chance.IntN(8) == 0 {
			l.challenge = broken[chance.IntN(len(broken))]
		}
		switch {
		case chance.IntN(25) == 0:
			l.taken = true
		case i > 0 && chance.IntN(5) == 0: // the same owner comes again, perhaps too early
			if former := lives[i-1-chance.IntN(min(i, 8))]; !lasting[former.owner] && !former.taken {
				l.owner = former.owner
			}
		}
		// One that came later may start first, when the other cannot be built for a while;
		// then the other waits, and its time does not run.
		shares := slices.ContainsFunc(lives[:i], func(former *life) bool { return former.owner == l.owner })
		if l.ends == survives && shares || l.ends == survives && !blueprints[l.challenge].starts || l.ends == expires && !blueprints[l.challenge].builds || l.taken {
			l.ends = isDeleted
		}
		lasting[l.owner] = l.ends == survives
		l.decide(chance)
		lives[i] = l
	}
	return lives
}

const flagPrefix = "flag{chaos-"

// decide chooses what happens between the beginning and the end.
func (l *life) decide(chance *rand.Rand) {
	seconds := func(from, to int) time.Duration { return time.Duration(from+chance.IntN(to-from)) * time.Second }
	l.timeout = long
	if l.ends == expires {
		l.timeout = seconds(3, 40)
	}
	add := func(after time.Duration, what, patch string) { l.acts = append(l.acts, act{after, what, patch}) }
	if blueprints[l.challenge].builds && chance.IntN(10) == 0 {
		add(seconds(1, 10), "give the flag", fmt.Sprintf(`{"spec":{"flag":%q}}`, l.flag))
		l.flag = ""
	}
	switch timeout := l.timeout; chance.IntN(6) {
	case 0:
		if l.ends == expires {
			timeout += seconds(5, 30)
		} else {
			timeout += time.Hour
		}
		add(seconds(0, 20), "extend", fmt.Sprintf(`{"spec":{"timeout":%q}}`, spell(timeout)))
	case 1:
		if l.ends == expires {
			timeout = seconds(1, 10)
		} else {
			timeout -= time.Hour
		}
		add(seconds(0, 15), "shorten", fmt.Sprintf(`{"spec":{"timeout":%q}}`, spell(timeout)))
	case 2:
		add(seconds(0, 20), "adopt the Challenge", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, bergv1.AnnotationRollout, strconv.Itoa(chance.Int())))
	}
	switch l.ends {
	case isDeleted:
		add(seconds(0, 40), "delete", "")
	case asksToEnd:
		reason := []bergv1.TerminationReason{bergv1.TerminationUserRequest, bergv1.TerminationAdmin}[chance.IntN(2)]
		add(seconds(0, 40), "ask to end", fmt.Sprintf(`{"spec":{"terminationReason":%q}}`, reason))
	}
}

// spell writes a duration as the schema admits it.
func spell(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) + "s" }

func randomUUID(chance *rand.Rand) string {
	var id uuid.UUID
	for i := range id {
		id[i] = byte(chance.IntN(256))
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id.String()
}

func (l *life) instance() *bergv1.ChallengeInstance {
	return &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: l.name},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: l.challenge, Namespace: arena},
			OwnerID:      l.owner, Flag: l.flag, Timeout: spell(l.timeout),
		},
	}
}

// live lets a life take its course, however often the API server is away.
func (w *world) live(ctx context.Context, l *life) error {
	if err := pause(ctx, l.begins); err != nil {
		return err
	}
	// After an answer that was lost, it is there already.
	if err := w.retry(ctx, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(w.client.Create(ctx, l.instance()))
	}); err != nil {
		return fmt.Errorf("create %s: %w", l.name, err)
	}
	for _, a := range l.acts {
		if err := pause(ctx, a.after); err != nil {
			return err
		}
		ends := slices.Contains([]string{"delete", "ask to end"}, a.what)
		if ends {
			l.asked.Store(true)
		}
		err := w.retry(ctx, func(ctx context.Context) error {
			if a.patch == "" {
				return client.IgnoreNotFound(w.client.Delete(ctx, l.instance()))
			}
			return client.IgnoreNotFound(w.client.Patch(ctx, l.instance(), client.RawPatch("application/merge-patch+json", []byte(a.patch))))
		})
		if err != nil {
			return fmt.Errorf("%s %s: %w", a.what, l.name, err)
		}
	}
	return nil
}

// pause waits, or returns why there is nothing left to wait for.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
