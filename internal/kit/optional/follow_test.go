package optional

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var (
	pipelineKind = schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: "Pipeline"}
	pipelines    = "pipelines.tekton.dev"
)

// cluster is the part of a cluster that a Follower reads: the CRD of an unstructured kind, and
// the resources that may need it.
type cluster struct {
	client.Reader
	cache.Informers
	cache.Informer
	definition *metav1.PartialObjectMetadata
	served     error
	resources  []string
	unlisted   error
	// seen is the resource version that the watch of the kind has reached.
	seen string
	// asked is how often the API server was asked for the kind.
	asked  int
	opened int
}

func (c *cluster) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if c.definition == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	c.definition.DeepCopyInto(into.(*metav1.PartialObjectMetadata))
	return nil
}

func (c *cluster) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if list, ok := into.(*corev1.ConfigMapList); ok {
		for _, name := range c.resources {
			list.Items = append(list.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		return c.unlisted
	}
	c.asked++
	return c.served
}

func (c *cluster) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c, nil
}

func (c *cluster) LastSyncResourceVersion() string { return c.seen }

func (c *cluster) install(uid types.UID, resourceVersion string) {
	c.definition = Definition()
	c.definition.SetName(pipelines)
	c.definition.SetUID(uid)
	c.definition.SetResourceVersion(resourceVersion)
}

// follower returns a Follower of the kind, which is served from the start or not, and the
// enqueued resources.
func (c *cluster) follower(t *testing.T, there bool) (f *Follower, enqueued chan string) {
	t.Helper()
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(pipelineKind)
	f = &Follower{
		kinds: map[string]client.Object{pipelines: kind}, presence: &Presence{},
		direct: c, client: c, informers: c, scheme: runtime.NewScheme(),
		open:    func(client.Object) error { c.opened++; return nil },
		watched: map[string]bool{}, announced: map[string]types.UID{}, removed: map[string]bool{}, attempts: map[string]attempts{},
	}
	f.presence.Set(pipelineKind, !there)
	if there {
		f.watched[pipelines], f.announced[pipelines] = true, fromStart
	}
	f.Enqueues(func() client.ObjectList { return &corev1.ConfigMapList{} })
	enqueued = make(chan string, 100)
	go func() {
		for {
			select {
			case e := <-f.enqueuers[0].to:
				enqueued <- e.Object.GetName()
			case <-t.Context().Done():
				return
			}
		}
	}()
	return f, enqueued
}

func look(t *testing.T, f *Follower) ctrl.Result {
	t.Helper()
	result, err := f.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: pipelines}})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func isMissing(f *Follower) bool { return meta.IsNoMatchError(f.presence.Check(pipelineKind)) }

func TestResourcesAreEnqueuedWhenAnAPIIsInstalled(t *testing.T) {
	c := &cluster{resources: []string{"a", "b"}, served: &meta.NoKindMatchError{}}
	f, enqueued := c.follower(t, false)
	c.install("one", "5")
	if result := look(t, f); result.RequeueAfter != servedDelays.First || c.opened > 0 || !isMissing(f) {
		t.Errorf("before it is served: %+v, %d watches, missing %v", result, c.opened, isMissing(f))
	}
	c.served = nil
	if result := look(t, f); !result.IsZero() || c.opened != 1 || isMissing(f) {
		t.Errorf("it is there: %+v, %d watches, missing %v", result, c.opened, isMissing(f))
	}
	if got := []string{<-enqueued, <-enqueued}; !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v are enqueued", got)
	}
	asked := c.asked
	if result := look(t, f); !result.IsZero() || c.asked > asked || len(enqueued) > 0 {
		t.Errorf("looked at again: %+v, %d requests, %d enqueued", result, c.asked-asked, len(enqueued))
	}

	c.definition.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if result := look(t, f); !result.IsZero() || !isMissing(f) || <-enqueued != "a" || <-enqueued != "b" {
		t.Errorf("it is being removed: %+v, missing %v", result, isMissing(f))
	}
	c.definition = nil
	if result := look(t, f); !result.IsZero() || !isMissing(f) || len(enqueued) > 0 {
		t.Errorf("it was removed: %+v, missing %v, %d enqueued again", result, isMissing(f), len(enqueued))
	}
	c.install("another", "9")
	c.seen = "8"
	if result := look(t, f); result.RequeueAfter != servedDelays.First || !isMissing(f) {
		t.Errorf("the watch is behind: %+v, missing %v", result, isMissing(f))
	}
	c.seen = "10"
	if result := look(t, f); !result.IsZero() || c.opened != 1 || isMissing(f) || <-enqueued != "a" || <-enqueued != "b" {
		t.Errorf("it is back: %+v, %d watches, missing %v", result, c.opened, isMissing(f))
	}
}

func TestAnAPIFromTheStartEnqueuesNoResources(t *testing.T) {
	c := &cluster{resources: []string{"a"}}
	f, enqueued := c.follower(t, true)
	if served := f.Served(); len(served) != 1 {
		t.Errorf("%d kinds are served", len(served))
	}
	c.install("one", "5")
	for range 2 {
		if result := look(t, f); !result.IsZero() || c.asked > 0 || c.opened > 0 || isMissing(f) || len(enqueued) > 0 {
			t.Errorf("%+v, %d requests, %d watches, missing %v, %d enqueued", result, c.asked, c.opened, isMissing(f), len(enqueued))
		}
	}
	c.definition.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if look(t, f); !isMissing(f) {
		t.Error("it is being removed, and not missing")
	}
}

func TestEnqueueingIsRetried(t *testing.T) {
	c := &cluster{resources: []string{"a"}, unlisted: errors.New("the cache waits"), seen: "9"}
	f, enqueued := c.follower(t, false)
	c.install("one", "5")
	request := ctrl.Request{NamespacedName: types.NamespacedName{Name: pipelines}}
	if _, err := f.Reconcile(t.Context(), request); !errors.Is(err, c.unlisted) {
		t.Fatal(err)
	}
	c.unlisted = nil
	if look(t, f); <-enqueued != "a" || c.opened != 1 {
		t.Errorf("%d watches", c.opened)
	}

	f.announced = map[string]types.UID{}
	down := errors.New("connection refused")
	c.served = down
	if _, err := f.Reconcile(t.Context(), request); !errors.Is(err, down) {
		t.Errorf("no answer became %v", err)
	}
}

func TestDelaysGrowUntilTheCRDChanges(t *testing.T) {
	c := &cluster{}
	f, _ := c.follower(t, false)
	c.install("one", "5")
	var last time.Duration
	for n := range 20 {
		delay := f.delay(c.definition)
		if n == 0 && delay != servedDelays.First || delay < last {
			t.Fatalf("delay %d is %s after one of %s", n, delay, last)
		}
		last = delay
	}
	if last != servedDelays.Max {
		t.Errorf("the longest delay is %s", last)
	}
	c.definition.SetResourceVersion("6")
	if delay := f.delay(c.definition); delay != servedDelays.First {
		t.Errorf("the CRD has changed, and the delay is %s", delay)
	}
}
