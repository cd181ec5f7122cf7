package evening

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/api/changes"
)

// maxGone is how many deletions a reader may miss before it reads everything again.
const maxGone = 1024

// Board has all instances of the platforms' namespaces as they are now.
type Board struct {
	cache cache.Cache
	clock clock.WithTicker

	mu      sync.Mutex
	rows    map[string]*Row
	version uint64
	gone    []goneRow
	// dropped is the version of the last deletion that gone has no more.
	dropped uint64
	// changes has the namespaces in which something changed as keys.
	changes changes.Changes
	history map[string]*history
	// challenges and checks are what is known of each Challenge.
	challenges map[types.NamespacedName]challengeState
	checks     map[types.NamespacedName]map[string]checkState
	// ready: what the cache tells from now on are changes.
	ready bool
	// summaries are those of the present version, by namespace.
	summaries map[string]Summary
}

type goneRow struct {
	id      string
	version uint64
}

// NewBoard returns a Board for namespaces. Start fills it.
func NewBoard(rc *rest.Config, scheme *runtime.Scheme, namespaces []string, now clock.WithTicker) (*Board, error) {
	b := newBoard(now)
	of := map[string]cache.Config{}
	for _, name := range namespaces {
		of[name] = cache.Config{}
	}
	var err error
	b.cache, err = cache.New(rc, cache.Options{Scheme: scheme, DefaultNamespaces: of, DefaultTransform: trim})
	if err != nil {
		return nil, fmt.Errorf("make the cache of the page: %w", err)
	}
	return b, nil
}

func newBoard(now clock.WithTicker) *Board {
	return &Board{
		clock: now, rows: map[string]*Row{}, history: map[string]*history{}, summaries: map[string]Summary{},
		challenges: map[types.NamespacedName]challengeState{}, checks: map[types.NamespacedName]map[string]checkState{},
	}
}

// trim keeps what a row is made of, so that no flag is in the memory of the page.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *bergv1.Challenge:
		kept := &bergv1.Challenge{TypeMeta: o.TypeMeta, Status: o.Status}
		kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = o.Namespace, o.Name, o.UID, o.ResourceVersion
		return kept, nil
	case *bergv1.ChallengeCheck:
		kept := &bergv1.ChallengeCheck{TypeMeta: o.TypeMeta}
		kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = o.Namespace, o.Name, o.UID, o.ResourceVersion
		kept.Spec.ChallengeRef = o.Spec.ChallengeRef
		if last := o.Status.LastResult; last != nil { // without what a solver wrote
			kept.Status.LastResult = &bergv1.CheckResult{
				CheckRun: bergv1.CheckRun{StartedAt: last.StartedAt, FinishedAt: last.FinishedAt}, Result: last.Result,
			}
		}
		return kept, nil
	}
	i, ok := object.(*bergv1.ChallengeInstance)
	if !ok {
		return object, nil
	}
	kept := &bergv1.ChallengeInstance{TypeMeta: i.TypeMeta}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = i.Namespace, i.Name, i.UID, i.ResourceVersion
	kept.CreationTimestamp, kept.DeletionTimestamp = i.CreationTimestamp, i.DeletionTimestamp
	if source := i.Labels[bergv1.LabelSource]; source != "" {
		kept.Labels = map[string]string{bergv1.LabelSource: source}
	}
	kept.Spec.ChallengeRef, kept.Spec.OwnerID, kept.Spec.TerminationReason = i.Spec.ChallengeRef, i.Spec.OwnerID, i.Spec.TerminationReason
	s := i.Status
	kept.Status = bergv1.ChallengeInstanceStatus{
		Phase: s.Phase, Cause: s.Cause, Start: s.Start, Services: s.Services, ReadyAt: s.ReadyAt, ExpiresAt: s.ExpiresAt, Conditions: s.Conditions,
	}
	return kept, nil
}

// Start fills the Board, and keeps it current until ctx is done.
func (b *Board) Start(ctx context.Context) error {
	informer, err := b.cache.GetInformer(ctx, &bergv1.ChallengeInstance{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch instances: %w", err)
	}
	registered, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, initial bool) { b.see(object, initial) },
		UpdateFunc: func(_, object any) { b.see(object, false) },
		DeleteFunc: b.forget,
	})
	if err != nil {
		return err
	}
	// Without these the page shows instances alone.
	for _, kind := range []client.Object{&bergv1.Challenge{}, &bergv1.ChallengeCheck{}} {
		more, err := b.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := more.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: b.seeOther, UpdateFunc: func(_, object any) { b.seeOther(object) }, DeleteFunc: b.forgetOther,
		}); err != nil {
			return err
		}
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var both sync.WaitGroup
	both.Go(func() {
		if toolscache.WaitForCacheSync(running.Done(), registered.HasSynced) {
			b.mu.Lock()
			b.ready = true
			b.mu.Unlock()
			b.keepHistory(running)
		}
	})
	err = b.cache.Start(ctx)
	stop()
	both.Wait()
	return err
}

// see stores an instance as the cache has it.
func (b *Board) see(object any, initial bool) {
	i, ok := object.(*bergv1.ChallengeInstance)
	if !ok {
		return
	}
	r := rowOf(i)
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.rows[r.ID()]
	if before != nil && same(before, &r) {
		return
	}
	r.Changed = b.clock.Now()
	if initial && !r.Ready.IsZero() {
		r.Changed = r.Ready // it did not change with the start of this program
	} else if initial {
		r.Changed = r.Created
	}
	if !initial {
		b.historyOf(r.Namespace).count(before, &r)
	}
	b.changed(r.Namespace)
	r.version = b.version
	b.rows[r.ID()] = &r
}

func (b *Board) forget(object any) {
	var id types.NamespacedName
	switch o := object.(type) {
	case *bergv1.ChallengeInstance:
		id = types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	case toolscache.DeletedFinalStateUnknown:
		namespace, name, err := toolscache.SplitMetaNamespaceKey(o.Key)
		if err != nil {
			return
		}
		id = types.NamespacedName{Namespace: namespace, Name: name}
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows[id.String()] == nil {
		return
	}
	delete(b.rows, id.String())
	b.historyOf(id.Namespace).ends++
	b.changed(id.Namespace)
	b.gone = append(b.gone, goneRow{id.String(), b.version})
	if len(b.gone) > maxGone {
		rest := len(b.gone) - maxGone/2
		b.dropped = b.gone[rest-1].version
		b.gone = slices.Clone(b.gone[rest:])
	}
}

// changed is called with the lock held.
func (b *Board) changed(namespace string) {
	b.version++
	delete(b.summaries, namespace)
	b.changes.Happened(namespace)
}

// Changes returns a channel that gets a value after a change in a namespace, and a function to call at the end.
func (b *Board) Changes(namespace string) (changed <-chan struct{}, stop func()) {
	return b.changes.Wait(namespace)
}

// View is what a reader gets of a namespace.
type View struct {
	Version uint64
	Summary Summary
	// Rows that match, in the order of the page. Of Since, those that have changed since the given version.
	Rows []*Row
	// Gone are the IDs of rows that are deleted since the given version.
	Gone []string
	// All: changes were missed, so that Rows has all.
	All bool
}

// Read returns the rows of a namespace. after is the version that the reader knows; 0 for none.
func (b *Board) Read(namespace string, after uint64) View {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := View{Version: b.version, All: after == 0 || after < b.dropped}
	var of []*Row
	for _, r := range b.rows {
		if r.Namespace == namespace {
			of = append(of, r)
		}
	}
	for _, r := range of {
		if v.All || r.version > after {
			v.Rows = append(v.Rows, r)
		}
	}
	sortRows(v.Rows)
	for _, g := range b.gone {
		if g.version > after && !v.All {
			v.Gone = append(v.Gone, g.id)
		}
	}
	known, ok := b.summaries[namespace]
	if !ok {
		known = summarise(of, b.challengesOf(namespace), b.checksOf(namespace))
		b.summaries[namespace] = known
	}
	v.Summary = known
	return v
}

// Row returns one instance, nil if it does not exist.
func (b *Board) Row(namespace, name string) *Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rows[types.NamespacedName{Namespace: namespace, Name: name}.String()]
}

// Ready reports whether the Board is complete.
func (b *Board) Ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready
}

// sortRows orders rows as the page does: those with a problem first, then what changed last.
func sortRows(rows []*Row) {
	slices.SortFunc(rows, func(a, b *Row) int {
		if a.Problem != b.Problem {
			if a.Problem {
				return -1
			}
			return 1
		}
		return cmp.Or(-a.Changed.Compare(b.Changed), cmp.Compare(a.ID(), b.ID()))
	})
}

// keepHistory takes a sample of each namespace every minute, until ctx is done.
func (b *Board) keepHistory(ctx context.Context) {
	tick := b.clock.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C():
			b.sample(now)
		}
	}
}

func (b *Board) sample(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]map[State]int{}
	for _, r := range b.rows {
		if counts[r.Namespace] == nil {
			counts[r.Namespace] = map[State]int{}
		}
		counts[r.Namespace][r.State]++
		b.historyOf(r.Namespace)
	}
	for namespace := range maps.Keys(b.history) {
		b.history[namespace].sample(now, counts[namespace])
	}
}

// historyOf is called with the lock held.
func (b *Board) historyOf(namespace string) *history {
	if b.history[namespace] == nil {
		b.history[namespace] = &history{}
	}
	return b.history[namespace]
}

// History returns the samples of a namespace, the oldest first.
func (b *Board) History(namespace string) []Sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.historyOf(namespace).samples)
}
