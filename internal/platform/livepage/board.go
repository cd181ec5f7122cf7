package livepage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
	"github.com/bergctf/berg-operator/internal/platform/changes"
	"github.com/bergctf/berg-operator/internal/platform/instances"
)

// maxGone is the number of deletions that a reader may miss before it reads everything again.
const maxGone = 1024

// Options are the scope and the settings of a Board.
type Options struct {
	// Namespaces of instances.
	Namespaces []string
	// RecordNamespace has the records of instances that have ended. "": none are shown.
	RecordNamespace string
	// Operator has the settings that determine the resources of an instance, and the lease that shows that it runs.
	Operator Operator
	// Shared are the settings of the ConfigMap that the operator reads, too. A change of it starts this program again.
	Shared map[string]string
	// SourceURL is the address of a user or team of the platform, with {source}. "": there is none.
	SourceURL string
	// NodePorts is the number of node ports of the API server. 0: no limit.
	NodePorts int
	// NodeReserve is the share of each node that is reserved for other pods, in percent.
	NodeReserve int
	// GateAddress is a name that resolves to the replicas of the gate, with their admin port. "": the page does not show how players use
	// instances.
	GateAddress string
}

// Board has all instances of the platforms' namespaces as they are now.
type Board struct {
	options Options
	// store has the instances and the Challenges, and cache the checks and the nodes.
	store *instances.Store
	cache cache.Cache
	// records watches the metadata of records, and reader reads one of them. Both are nil without records.
	records cache.Cache
	reader  client.Reader
	client  kubernetes.Interface
	events  *eventRing
	clock   clock.WithTicker
	// id distinguishes versions of this Board from versions of other replicas, which count independently.
	id string

	// mu guards the fields below. Changes are announced while it is held; announcements never block.
	mu      sync.Mutex
	rows    map[string]*Row
	version uint64
	gone    []goneRow
	// dropped is the version of the last deletion that gone no longer has. A reader of an earlier version gets all
	// rows.
	dropped uint64
	// changes has the namespaces in which something changed as keys, the IDs of rows, and the UIDs of instances with an event.
	changes changes.Changes
	history map[string]*history
	// challenges and checks have the known state of each Challenge.
	challenges map[string]view.Challenge
	// specs are the Challenges as the cache of the store has them, from which challenges follow.
	specs    map[string]*bergv1.Challenge
	operator operatorState
	checks   map[types.NamespacedName]map[string]checkState
	nodes    map[string]corev1.Node
	ended    map[types.UID]Ended
	uses     view.Uses
	// ready: the cache is complete, and later events are changes.
	ready bool
	// summaries are cached for the current version, by namespace; changed clears them.
	summaries map[string]Summary
}

type goneRow struct {
	id      string
	version uint64
}

// NewBoard returns a Board of a cluster, with the instances and Challenges of a store. Start fills it.
func NewBoard(rc *rest.Config, store *instances.Store, options Options, now clock.WithTicker) (*Board, error) {
	b := newBoard(options, now)
	b.store = store
	scheme := instances.Scheme()
	configs := map[string]cache.Config{}
	for _, name := range options.Namespaces {
		configs[name] = cache.Config{}
	}
	var err error
	if b.cache, err = cache.New(rc, cache.Options{
		Scheme: scheme, DefaultNamespaces: configs, DefaultTransform: trim, ByObject: map[client.Object]cache.ByObject{
			&appsv1.Deployment{}: options.Operator.scoped(options.Operator.Deployment), &coordinationv1.Lease{}: options.Operator.scoped(options.Operator.Lease),
		},
	}); err != nil {
		return nil, fmt.Errorf("make the cache of the page: %w", err)
	}
	if b.client, err = kubernetes.NewForConfig(rc); err != nil {
		return nil, fmt.Errorf("make the client for events: %w", err)
	}
	if options.RecordNamespace == "" {
		return b, nil
	}
	b.records, err = cache.New(rc, cache.Options{
		Scheme: scheme, DefaultNamespaces: map[string]cache.Config{options.RecordNamespace: {}}, DefaultTransform: trimRecord,
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of records: %w", err)
	}
	if b.reader, err = client.New(rc, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make the client for records: %w", err)
	}
	return b, nil
}

func newBoard(options Options, now clock.WithTicker) *Board {
	b := &Board{
		options: options, clock: now, id: uuid.NewString(), rows: map[string]*Row{}, history: map[string]*history{}, summaries: map[string]Summary{},
		challenges: map[string]view.Challenge{}, checks: map[types.NamespacedName]map[string]checkState{},
		nodes: map[string]corev1.Node{}, ended: map[types.UID]Ended{}, specs: map[string]*bergv1.Challenge{},
	}
	b.operator.load(nil, b.options.Shared)
	b.events = newEventRing(func(instance types.UID) { b.changes.Happened(string(instance)) })
	return b
}

// trim reduces a check and a node to the fields that the page shows, before the cache stores them.
func trim(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Node:
		return trimNode(o), nil
	case *appsv1.Deployment:
		return trimDeployment(o), nil
	case *coordinationv1.Lease:
		o.ManagedFields, o.Annotations, o.Labels = nil, nil, nil
		return o, nil
	case *bergv1.ChallengeCheck:
		kept := &bergv1.ChallengeCheck{TypeMeta: o.TypeMeta}
		kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion = o.Namespace, o.Name, o.UID, o.ResourceVersion
		kept.Spec.ChallengeRef = o.Spec.ChallengeRef
		if last := o.Status.LastResult; last != nil { // without the text of the solver, which may have a flag
			kept.Status.LastResult = &bergv1.CheckResult{
				CheckRun: bergv1.CheckRun{StartedAt: last.StartedAt, FinishedAt: last.FinishedAt}, Result: last.Result,
			}
		}
		return kept, nil
	default:
		return instances.Trim(object)
	}
}

// Start fills the Board, and keeps it current until ctx is done. Events may come before the Board is ready. They are stored, and
// pages are refused until then.
func (b *Board) Start(ctx context.Context) error {
	synced, err := b.store.Watch(ctx, &bergv1.ChallengeInstance{}, toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, initial bool) { b.see(object, initial) },
		UpdateFunc: func(_, object any) { b.see(object, false) },
		DeleteFunc: b.forget,
	})
	if err != nil {
		return err
	}
	handler := func(see, forget func(any)) toolscache.ResourceEventHandler {
		return toolscache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: forget}
	}
	if _, err := b.store.Watch(ctx, &bergv1.Challenge{}, handler(b.seeOther, b.forgetOther)); err != nil {
		return err
	}
	// Without these the page shows instances and Challenges alone.
	for kind, follow := range map[client.Object]toolscache.ResourceEventHandler{
		&bergv1.ChallengeCheck{}: handler(b.seeOther, b.forgetOther), &corev1.Node{}: handler(b.seeNode, b.forgetNode),
		&coordinationv1.Lease{}: handler(b.seeOperator, func(any) {}), &appsv1.Deployment{}: handler(b.seeOperator, func(any) {}),
	} {
		informer, err := b.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(follow); err != nil {
			return err
		}
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var readers sync.WaitGroup
	for _, namespace := range b.options.Namespaces {
		readers.Go(func() { b.events.follow(running, b.client, namespace) })
	}
	if b.records != nil {
		readers.Go(func() {
			if err := b.followRecords(running); err != nil {
				stop(err)
			}
		})
	}
	if b.options.GateAddress != "" {
		readers.Go(func() { newGateClient(b.options.GateAddress).follow(running, b.clock, b.lastUses, b.seeUses) })
	}
	readers.Go(func() {
		if toolscache.WaitForCacheSync(running.Done(), synced) {
			b.mu.Lock()
			b.ready = true
			b.mu.Unlock()
			b.keepHistory(running)
		}
	})
	err = b.cache.Start(running)
	cause := context.Cause(running)
	stop(nil)
	readers.Wait()
	if cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// see stores an instance from the cache. An update that changes nothing on the page gets no version, so that streams do
// not repeat rows. initial objects existed before this program and are not counted in the history. A row is never changed after
// it is stored, so readers use it without the lock.
func (b *Board) see(object any, initial bool) {
	i, ok := object.(*bergv1.ChallengeInstance)
	if !ok {
		return
	}
	r := Row{Row: view.NewRow(i)}
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
		b.ensureHistory(r.Namespace).count(before, &r)
	}
	b.changed(r.Namespace, r.ID())
	r.version, r.Use = b.version, b.uses.Find(&r.Row, r.Changed)
	b.rows[r.ID()] = &r
}

// seeOperator stores the state of the operator. A renewal of the lease changes nothing on the page, and gets no version.
func (b *Board) seeOperator(object any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o := object.(type) {
	case *coordinationv1.Lease:
		if o.Spec.RenewTime != nil && !o.Spec.RenewTime.Time.Equal(b.operator.renewal) {
			// The time of this clock, because the clock of the operator's node may differ.
			b.operator.renewal, b.operator.seen = o.Spec.RenewTime.Time, b.clock.Now()
		}
	case *appsv1.Deployment:
		variables := map[string]string{}
		for _, c := range o.Spec.Template.Spec.Containers {
			for _, v := range c.Env {
				variables[v.Name] = v.Value
			}
		}
		if !b.operator.load(variables, b.options.Shared) {
			return
		}
		for id, c := range b.specs {
			b.challenges[id] = view.NewChallenge(c, &b.operator.plan)
		}
		b.changed(b.options.Namespaces...)
	}
}

// lastUses returns the time before which all uses are known.
func (b *Board) lastUses() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.uses.Complete.Add(-useInterval)
}

// seeUses stores answers of the gate. Rows that they change get a new version.
func (b *Board) seeUses(reports []gateadmin.Report, asked time.Time, complete bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses.Merge(reports, asked, complete)
	known := map[string]bool{}
	for id, row := range b.rows {
		for _, service := range row.Services {
			known[gateadmin.ID(service.Hostname)] = true
		}
		use := b.uses.Find(&row.Row, asked)
		if use == row.Use {
			continue
		}
		// A copy: readers use rows that Read has returned without the lock.
		next := *row
		next.Use = use
		b.changed(row.Namespace, id)
		next.version = b.version
		b.rows[id] = &next
	}
	b.uses.Forget(known, asked)
}

// forget removes a deleted instance and keeps its ID for readers of earlier versions. When there are too many such IDs,
// the older half is dropped, and readers from before get all rows.
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
	b.ensureHistory(id.Namespace).ends++
	b.changed(id.Namespace, id.String())
	b.gone = append(b.gone, goneRow{id.String(), b.version})
	if len(b.gone) > maxGone {
		rest := len(b.gone) - maxGone/2
		b.dropped = b.gone[rest-1].version
		b.gone = slices.Clone(b.gone[rest:])
	}
}

// changed announces a change under keys: namespaces, and IDs of rows. Every change affects the capacity of all
// namespaces, so all summaries are cleared; they are calculated when a reader next asks. The caller holds the lock.
func (b *Board) changed(keys ...string) {
	b.version++
	clear(b.summaries)
	b.changes.Happened(keys...)
}

// Changes returns a channel that gets a value after a change in a namespace, and a function to call at the end.
func (b *Board) Changes(namespace string) (changed <-chan struct{}, stop func()) {
	return b.changes.Wait(namespace)
}

// View is the state of a namespace for one reader.
type View struct {
	Version  uint64
	Summary  Summary
	Alerts   []Alert
	Problems []*Problem
	// Rows that match, in the order of the page. Without All they are only the rows that have changed since the given
	// version.
	Rows []*Row
	// Gone are the IDs of rows that are deleted since the given version.
	Gone []string
	// All: the reader has missed changes or has no version, so Rows has all rows and replaces them.
	All bool
}

// Cursor names a version so that any replica understands it. After a restart the Board has another id, so each reader gets
// everything once.
func (b *Board) Cursor(version uint64) string { return b.id + "." + strconv.FormatUint(version, 10) }

// ParseCursor returns the version in a cursor. It returns 0, for everything, if the cursor is empty or of another
// replica: versions of replicas cannot be compared.
func (b *Board) ParseCursor(cursor string) uint64 {
	id, number, _ := strings.Cut(cursor, ".")
	version, err := strconv.ParseUint(number, 10, 64)
	if err != nil || id != b.id {
		return 0
	}
	return version
}

// Found returns how many rows of a namespace match.
func (b *Board) Found(namespace string, f Filter) (found int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.rows {
		if r.Namespace == namespace && f.matches(r) {
			found++
		}
	}
	return found
}

// Read returns the rows of a namespace. after is the version that the reader knows; 0 for none. All parts of the view are of the
// same version, since the lock is held for the whole of it.
func (b *Board) Read(namespace string, after uint64) View {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := View{Version: b.version, All: after == 0 || after < b.dropped}
	var here []*Row
	var rows []*view.Row
	for _, r := range b.rows {
		if r.Namespace != namespace {
			continue
		}
		here, rows = append(here, r), append(rows, &r.Row)
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
		known = summarise(rows, b.namespaceChallenges(namespace), b.namespaceChecks(namespace), b.capacityNow(namespace), view.NewOverview(rows, b.clock.Now()))
		b.summaries[namespace] = known
	}
	v.Summary = known
	now := b.clock.Now() // instances become late without a change
	v.Alerts, v.Problems = findAlerts(here, b.operator.seen, b.options.Operator.Namespace, now), findProblems(here, b.namespaceChallenges(namespace), now)
	return v
}

// Row returns one instance, nil if it does not exist.
func (b *Board) Row(namespace, name string) *Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rows[view.JoinID(namespace, name)]
}

// Events returns the events of an instance, the oldest first.
func (b *Board) Events(instance types.UID) []Event { return b.events.List(instance) }

// RowChanges is Changes for one instance, with its events.
func (b *Board) RowChanges(r *Row) (changed <-chan struct{}, stop func()) {
	return b.changes.Wait(r.ID(), string(r.UID))
}

// Ready reports whether the Board is complete.
func (b *Board) Ready() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready
}

// sortRows orders rows for the page: the latest changes first. Problems have a list of their own.
func sortRows(rows []*Row) {
	slices.SortFunc(rows, func(a, b *Row) int { return cmp.Or(-a.Changed.Compare(b.Changed), cmp.Compare(a.ID(), b.ID())) })
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

// sample also adds to namespaces without instances, so that their graphs go on.
func (b *Board) sample(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]map[view.State]int{}
	for _, r := range b.rows {
		if counts[r.Namespace] == nil {
			counts[r.Namespace] = map[view.State]int{}
		}
		counts[r.Namespace][r.State]++
		b.ensureHistory(r.Namespace)
	}
	for namespace := range maps.Keys(b.history) {
		b.history[namespace].sample(now, counts[namespace])
	}
}

// ensureHistory is called with the lock held.
func (b *Board) ensureHistory(namespace string) *history {
	if b.history[namespace] == nil {
		b.history[namespace] = &history{}
	}
	return b.history[namespace]
}

// History returns the samples of a namespace, the oldest first.
func (b *Board) History(namespace string) []Sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.ensureHistory(namespace).samples)
}
