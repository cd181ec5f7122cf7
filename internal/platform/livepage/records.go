package livepage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

const (
	// maxEnded is the number of ended instances that the page lists.
	maxEnded = 30
	// maxLog is the size of the end of a log on the page, in bytes.
	maxLog = 16 << 10
)

// Ended is an instance that has a record.
type Ended struct {
	UID                               types.UID
	Namespace, Name, Challenge, Owner string
	// At is the time at which the record was written.
	At time.Time
}

// Record is the content of a record that the page shows. It has no field for a flag; the operator has removed flags
// from texts and logs.
type Record struct {
	Ended
	// Reason is the reason for the end, Phase the last phase, and Problem the last problem.
	Reason, Phase, Problem string
	Restarts               int32
	// Incomplete is the reason for a missing part.
	Incomplete string
	Timeline   []Moment
	Containers []Container
}

// Container is a container of an ended instance.
type Container struct {
	Name, Image, Node, State, Message string
	Restarts                          int32
	// Log is its end, Cut that there was more, Missing why there is none.
	Log, Missing string
	Cut          bool
}

// trimRecord reduces the metadata of a record to the fields that the list shows.
func trimRecord(object any) (any, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	kept := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta}
	kept.Namespace, kept.Name, kept.UID, kept.ResourceVersion, kept.CreationTimestamp = m.Namespace, m.Name, m.UID, m.ResourceVersion, m.CreationTimestamp
	kept.Annotations, kept.Labels = map[string]string{}, map[string]string{}
	for _, key := range []string{bergv1.AnnotationInstance, bergv1.AnnotationChallenge} {
		kept.Annotations[key] = beginning(m.Annotations[key], maxEventText)
	}
	for _, key := range []string{bergv1.LabelOwnerID, bergv1.LabelSource} {
		if value := m.Labels[key]; value != "" {
			kept.Labels[key] = value
		}
	}
	return kept, nil
}

// recordKind watches only the metadata of records, which name the instance. The logs are large and stay in the API
// server.
func recordKind() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(bergv1.GroupVersion.WithKind("ChallengeInstanceRecord"))
	return m
}

// followRecords keeps the list of records current until ctx is done.
func (b *Board) followRecords(ctx context.Context) error {
	informer, err := b.records.GetInformer(ctx, recordKind(), cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch records: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: b.seeRecord, UpdateFunc: func(_, object any) { b.seeRecord(object) }, DeleteFunc: b.forgetRecord,
	}); err != nil {
		return err
	}
	return b.records.Start(ctx)
}

// seeRecord stores the metadata of a record.
func (b *Board) seeRecord(object any) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	namespace, name, _ := strings.Cut(m.Annotations[bergv1.AnnotationInstance], "/")
	ended := Ended{
		UID: types.UID(m.Name), Namespace: namespace, Name: name, Challenge: m.Annotations[bergv1.AnnotationChallenge], At: m.CreationTimestamp.Time,
		Owner: m.Labels[bergv1.LabelSource],
	}
	if ended.Owner == "" {
		ended.Owner = m.Labels[bergv1.LabelOwnerID]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended[ended.UID] == ended {
		return
	}
	b.ended[ended.UID] = ended
	b.changed(namespace, view.JoinID(namespace, name))
}

// forgetRecord goes by the name, which is the UID of the instance.
func (b *Board) forgetRecord(object any) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ended, known := b.ended[types.UID(m.Name)]
	if !known {
		return
	}
	delete(b.ended, ended.UID)
	b.changed(ended.Namespace)
}

// Ended returns the instances of a namespace that have a record and match, the last that ended first, and how many there are.
func (b *Board) Ended(namespace string, f Filter) (all []Ended, found int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ended := range b.ended {
		if ended.Namespace == namespace && f.matchesEnded(ended) {
			all = append(all, ended)
		}
	}
	slices.SortFunc(all, func(a, b Ended) int {
		if order := b.At.Compare(a.At); order != 0 {
			return order
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return all[:min(len(all), maxEnded)], len(all)
}

// LastEnded returns the last instance of a name that has a record.
func (b *Board) LastEnded(namespace, name string) (last Ended, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ended := range b.ended {
		if ended.Namespace == namespace && ended.Name == name && (!ok || ended.At.After(last.At)) {
			last, ok = ended, true
		}
	}
	return last, ok
}

// Awaited reports whether an instance ended a moment ago, so that its record may come.
func (b *Board) Awaited(namespace, name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := view.JoinID(namespace, name)
	return b.options.RecordNamespace != "" && slices.ContainsFunc(b.gone, func(g goneRow) bool { return g.id == id })
}

// Record reads a record from the API server: the one read that a page makes, of one object that is known to exist. ok is false
// if there is none for an instance of the namespace. The namespace is checked twice, in the list and in the object, so that a
// token never reads a record of another namespace.
func (b *Board) Record(ctx context.Context, namespace string, uid types.UID) (r Record, ok bool, err error) {
	b.mu.Lock()
	ended, known := b.ended[uid]
	b.mu.Unlock()
	if !known || ended.Namespace != namespace || b.reader == nil {
		return Record{}, false, nil
	}
	object := &bergv1.ChallengeInstanceRecord{}
	err = b.reader.Get(ctx, client.ObjectKey{Namespace: b.options.RecordNamespace, Name: string(uid)}, object)
	if apierrors.IsNotFound(err) || err == nil && object.Spec.Instance.Namespace != namespace {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, err
	}
	return newRecord(ended, object, b.events.List(uid)), true, nil
}

// newRecord converts a record for the page.
func newRecord(ended Ended, object *bergv1.ChallengeInstanceRecord, events []Event) Record {
	s := object.Spec
	r := Record{
		Ended: ended, Reason: string(s.Reason), Phase: string(s.Phase), Restarts: s.Restarts, Incomplete: s.Incomplete, Timeline: eventMoments(events),
	}
	r.At = s.EndedAt.Time
	if p := s.Problem; p != nil {
		r.Problem = joined(p.Condition+", "+p.Reason, p.Message)
	}
	for _, m := range s.Timeline {
		r.Timeline = append(r.Timeline, Moment{At: m.At.Time, What: m.Moment})
	}
	r.Timeline = inOrder(r.Timeline)
	for _, c := range s.Containers {
		container := Container{
			Name: c.Name, Image: c.Image, Node: c.Node, State: c.State, Message: joined(c.WaitingFor, c.Message), Restarts: c.Restarts,
			Missing: c.LogMissing,
		}
		if e := c.Exit; e != nil {
			container.State += fmt.Sprintf(", exit code %d", e.Code)
			if e.Reason != "" {
				container.State += " (" + e.Reason + ")"
			}
		}
		var shortened bool
		container.Log, shortened = lastLines(c.Log, maxLog)
		container.Cut = c.LogCut || shortened
		r.Containers = append(r.Containers, container)
	}
	return r
}

// lastLines returns the lines at the end of a text that fit into size bytes.
func lastLines(text string, size int) (end string, shortened bool) {
	if len(text) <= size {
		return text, false
	}
	end = text[len(text)-size:]
	if _, whole, ok := strings.Cut(end, "\n"); ok {
		return whole, true
	}
	return strings.ToValidUTF8(end, ""), true
}
