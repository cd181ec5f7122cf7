package poll

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/git"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
)

const (
	// spacing is the minimum time between two questions about a repository, however many pushes are announced.
	spacing = time.Second
	// confirmation is when a repository is asked once more that has nothing new after a webhook: providers may announce a push
	// before all their servers have it.
	confirmation = 10 * time.Second
	// Failed questions are repeated after firstRetry, then after twice as long each time, at most maxRetry; at most maxDownRetry if the
	// provider is down, so that its end is found soon.
	firstRetry, maxRetry, maxDownRetry = 15 * time.Second, 15 * time.Minute, time.Minute
	// maxUnread is how often a question is repeated because the message of a commit cannot be read. Then the commit is built.
	maxUnread = 3
	// jitter keeps the questions of many Applications from coming together.
	jitter = 0.1
)

// Question is a question about the repository of an Application.
type Question struct {
	// UID of the Application.
	UID      types.UID
	Provider kibashipv1.GitProvider
	URL      string
	// User and Secret are the login: Secret has the token, and "" is no login.
	User, Secret string
	Rule         Rule
	// Pushed is the value of AnnotationPushed: another value asks again.
	Pushed string
}

// Answer is the last answer about a repository.
type Answer struct {
	// Refs are the branches to build, and then the tag.
	Refs []git.Ref
	// Branches is how many branches match the rule.
	Branches int
	// Skipped are the commits among Refs whose message asks to build nothing.
	Skipped map[string]bool
	// Problem is why the last question failed: Refs are older then. Empty: it did not.
	Problem string
}

// Poller asks git servers about the repositories of Applications.
type Poller struct {
	providers *Providers
	interval  time.Duration // 0: after webhooks alone
	hosts     map[kibashipv1.GitProvider]*host
	changed   chan event.GenericEvent

	mu    sync.Mutex
	known map[types.NamespacedName]*record
}

// record is what a Poller knows of one Application.
type record struct {
	question Question
	built    []string // commits that are built, or were
	token    string
	answer   Answer
	answered bool
	asked    time.Time
	pushed   bool // asked because of a webhook
	failures int
}

// New returns a Poller that asks about each repository at an interval, and after webhooks; 0 is after webhooks alone. Nothing of
// it is stored. After a restart each Application is asked about once, and its status keeps the last answer until then.
func New(providers *Providers, interval time.Duration) *Poller {
	p := &Poller{
		providers: providers, interval: interval, changed: make(chan event.GenericEvent), known: map[types.NamespacedName]*record{},
		hosts: map[kibashipv1.GitProvider]*host{},
	}
	for _, provider := range rules.GitProviders {
		p.hosts[provider] = newHost()
	}
	return p
}

// Source enqueues the requests of a controller when an answer has changed.
func (p *Poller) Source(handle handler.EventHandler) source.Source {
	return source.Channel(p.changed, handle)
}

// Start implements manager.Runnable: it asks until ctx is done.
func (p *Poller) Start(ctx context.Context) error {
	var all sync.WaitGroup
	for _, h := range p.hosts {
		for range workers {
			all.Go(func() {
				for {
					key, ended := h.queue.Get()
					if ended {
						return
					}
					if ctx.Err() == nil {
						p.ask(ctx, key, h)
					}
					h.queue.Done(key)
				}
			})
		}
	}
	<-ctx.Done()
	for _, h := range p.hosts {
		h.queue.ShutDown()
	}
	all.Wait()
	return nil
}

// Ask returns the last answer about a repository; answered is false until the first question has an answer. built are commits whose
// messages need not be read. A new question is asked soon. It never asks itself and never blocks for a server. The answer comes
// later, by Source.
func (p *Poller) Ask(key types.NamespacedName, question Question, built []string) (answer Answer, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.known[key]
	if r == nil {
		r = &record{}
		p.known[key] = r
	}
	r.built = built
	if before := r.question; !equality.Semantic.DeepEqual(before, question) {
		pushed := before.Pushed != question.Pushed && before.UID == question.UID
		before.Pushed = question.Pushed
		if !equality.Semantic.DeepEqual(before, question) { // another repository, login or rule: nothing is known of it
			// The time of the last question stays, so that a changing spec asks no more often than spacing allows.
			*r = record{built: built, asked: r.asked}
		}
		r.question, r.pushed = question, pushed
		p.hosts[question.Provider].queue.AddAfter(key, max(0, time.Until(r.asked.Add(spacing))))
	}
	return r.answer, r.answered
}

// Forget ends the questions about an Application. A question that is under way is finished. Its answer is dropped.
func (p *Poller) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, key)
}

// ask asks about one Application, and says when to ask again.
func (p *Poller) ask(ctx context.Context, key types.NamespacedName, h *host) {
	p.mu.Lock()
	r := p.known[key]
	if r == nil {
		p.mu.Unlock()
		return
	}
	now, login := time.Now(), NewLogin(key.Namespace, r.question.Secret)
	// Two events, one of them before the interval was over; or the provider is down, or asks to be left alone.
	if early := max(r.asked.Add(spacing).Sub(now), h.pausedFor(now), h.waits.For(login, now)); early > 0 {
		p.mu.Unlock()
		h.queue.AddAfter(key, wait.Jitter(early, jitter))
		return
	}
	r.asked = now
	// The question is asked from a copy, without the lock.
	asked := *r
	p.mu.Unlock()

	answer, token, err := p.read(ctx, key.Namespace, asked)

	p.mu.Lock()
	defer p.mu.Unlock()
	var problem *git.Error
	down := errors.As(err, &problem) && problem.Down
	if err == nil || problem != nil { // the provider was asked
		h.observe(down, time.Now())
	}
	if problem != nil {
		h.waits.Begin(login, time.Now(), problem.Wait)
	}
	if r = p.known[key]; r == nil || r.question.UID != asked.question.UID || !equality.Semantic.DeepEqual(r.question.Rule, asked.question.Rule) ||
		r.question.URL != asked.question.URL || r.question.Secret != asked.question.Secret {
		return // a newer question is in the queue
	}
	changed := !r.answered || !equality.Semantic.DeepEqual(r.answer, answer)
	r.answer, r.answered, r.token = answer, true, token
	r.failures++
	if answer.Problem == "" {
		r.failures = 0
	}
	if after := r.next(p.interval, changed, down); after > 0 {
		h.queue.AddAfter(key, after)
	}
	if changed {
		// In a goroutine, because the lock is held and a controller that is busy takes the event later.
		go p.enqueue(ctx, key)
	}
}

// next returns after how long to ask again, 0 for not before the next webhook. A webhook gives at most one confirmation.
func (r *record) next(interval time.Duration, changed, down bool) time.Duration {
	pushed, latest := r.pushed, maxRetry
	r.pushed = false
	if down {
		latest = maxDownRetry
	}
	switch {
	case r.failures > 0:
		return wait.Jitter(min(firstRetry<<min(r.failures-1, 10), latest), jitter)
	case pushed && !changed:
		return confirmation
	case interval > 0:
		return wait.Jitter(interval, jitter)
	default:
		return 0
	}
}

func (p *Poller) enqueue(ctx context.Context, key types.NamespacedName) {
	select {
	case p.changed <- event.GenericEvent{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}:
	case <-ctx.Done():
	}
}

// read asks the server. After a failure the answer has what was known before, and why. The token is kept from one question to the
// next, and is read again only when the server refuses it.
func (p *Poller) read(ctx context.Context, namespace string, r record) (answer Answer, token string, err error) {
	answer, token, err = p.try(ctx, namespace, r)
	var refused *git.Error
	if r.token != "" && errors.As(err, &refused) && refused.Login { // the Secret may have another token by now
		r.token = ""
		answer, token, err = p.try(ctx, namespace, r)
	}
	if err != nil {
		answer, token = r.answer, ""
		answer.Problem = err.Error()
	}
	return answer, token, err
}

// try asks for the branches and tags, and then for the messages of commits that are new in the answer. A message is read once for
// each commit: what it says about skipping stays in the answer as long as a branch or tag has the commit. token is the one that
// was used, so that a login which is refused can be told apart from a newer one.
func (p *Poller) try(ctx context.Context, namespace string, r record) (answer Answer, token string, err error) {
	q := r.question
	if token = r.token; q.Secret != "" && token == "" {
		if token, err = p.providers.Token(ctx, namespace, q.Secret); err != nil {
			return answer, "", err
		}
	}
	through, err := p.providers.Client(ctx, namespace, q.Provider)
	if err != nil {
		return answer, "", err
	}
	repository := git.Repository{URL: q.URL, User: q.User, Token: token, HTTP: through}
	refs, err := repository.ListRefs(ctx, q.Rule.prefixes()...)
	questions.WithLabelValues(string(q.Provider), result(err)).Inc()
	if err != nil {
		return answer, "", err
	}
	answer.Refs, answer.Branches = q.Rule.choose(refs)
	answer.Skipped = maps.Clone(r.answer.Skipped)
	maps.DeleteFunc(answer.Skipped, func(commit string, _ bool) bool {
		return !slices.ContainsFunc(answer.Refs, func(ref git.Ref) bool { return ref.Commit == commit })
	})
	for _, ref := range answer.Refs {
		if slices.Contains(r.built, ref.Commit) || slices.ContainsFunc(r.answer.Refs, func(before git.Ref) bool { return before.Commit == ref.Commit }) {
			continue // it is known whether it is built
		}
		message, err := repository.ReadMessage(ctx, ref.Commit)
		var problem *git.Error
		if errors.As(err, &problem) && problem.Down && r.failures < maxUnread {
			return answer, "", err
		}
		// Another message that cannot be read skips nothing: the build says what is wrong with the repository.
		if err == nil && git.Skips(message) {
			if answer.Skipped == nil {
				answer.Skipped = map[string]bool{}
			}
			answer.Skipped[ref.Commit] = true
		}
	}
	return answer, token, nil
}
