package operator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestPackedObjectsAreReadAsTheyWere(t *testing.T) {
	wants := map[string]bool{}
	for _, o := range []client.Object{&corev1.Namespace{}, &corev1.Pod{}, &corev1.Service{}, &appsv1.Deployment{}, &policyv1.PodDisruptionBudget{}} {
		wants[fmt.Sprintf("%T", o)] = true
	}
	for _, o := range []client.Object{&bergv1.ChallengeInstance{}, &gatewayv1.HTTPRoute{}, &ciliumv2.CiliumNetworkPolicy{}} {
		wants[fmt.Sprintf("%T", o)] = false
	}
	for _, o := range recorded(t, 0) {
		kind := fmt.Sprintf("%T", o)
		kept, err := pack(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := kept.(*packed); got != wants[kind] {
			t.Errorf("%s: packed is %t", kind, got)
		}
		delete(wants, kind)
		if kept.GetNamespace() != o.GetNamespace() || kept.GetName() != o.GetName() || kept.GetResourceVersion() != o.GetResourceVersion() {
			t.Errorf("%s: kept as %s %s %s", kind, kept.GetNamespace(), kept.GetName(), kept.GetResourceVersion())
		}
		o.GetObjectKind().SetGroupVersionKind(kept.GetObjectKind().GroupVersionKind()) // what is read from a cache gets it anew
		if read := unpack(kept); !equality.Semantic.DeepEqual(o, read) {
			t.Errorf("%s:\n%s", kind, cmp.Diff(o, read))
		}
	}
	if len(wants) != 0 {
		t.Errorf("not recorded: %v", wants)
	}
}

func TestIndexFindsWhatHasAValue(t *testing.T) {
	const namespaces, each = 3 * setsOfIndex, 2
	byLabel := func(o any) ([]string, error) {
		name := o.(*corev1.ConfigMap).Labels["of"]
		return []string{name, "all/" + name}, nil
	}
	i := index{functions: toolscache.Indexers{}}
	i.Indexer = toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc,
		i.coarse(toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc}))
	if err := i.AddIndexers(i.coarse(toolscache.Indexers{"label": byLabel})); err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	for n := range namespaces * each {
		o := &corev1.ConfigMap{}
		o.Namespace, o.Name = fmt.Sprint("n", n/each), fmt.Sprint("o", n)
		o.Labels = map[string]string{"of": fmt.Sprint(n % 2)}
		kept, err := pack(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := i.Add(kept); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	expect := func(what string, want int, found []any, err error) {
		t.Helper()
		if err != nil || len(found) != want {
			t.Errorf("%s: %d found, want %d: %v", what, len(found), want, err)
		}
	}
	for n := 0; n < len(objects); n += each {
		found, err := i.ByIndex(toolscache.NamespaceIndex, objects[n].GetNamespace())
		expect("a namespace", each, found, err)
		for _, o := range found {
			if o.(*corev1.ConfigMap).Namespace != objects[n].GetNamespace() {
				t.Fatalf("found %+v", o)
			}
		}
	}
	found, err := i.ByIndex("label", "all/1")
	expect("a label", namespaces, found, err)
	found, err = i.ByIndex("label", "2")
	expect("a label of none", 0, found, err)
	found, err = i.Index(toolscache.NamespaceIndex, objects[0])
	expect("like another", each, found, err)
	found, err = i.Index("label", objects[0])
	expect("like another in two values", namespaces, found, err)
	expect("all", len(objects), i.List(), nil)
	keys, err := i.IndexKeys(toolscache.NamespaceIndex, "n7")
	slices.Sort(keys)
	if diff := cmp.Diff([]string{"n7/o14", "n7/o15"}, keys); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	if diff := cmp.Diff([]string{"0", "1", "all/0", "all/1"}, i.ListIndexFuncValues("label")); diff != "" {
		t.Error(diff)
	}
	if _, err := i.ByIndex("unknown", "x"); err == nil {
		t.Error("an index that does not exist has found nothing, and no error")
	}
	if _, err := i.Index("unknown", objects[0]); err == nil {
		t.Error("an index that does not exist has found nothing like another, and no error")
	}

	one, exists, err := i.GetByKey("n7/o14")
	if !exists || err != nil || !equality.Semantic.DeepEqual(one, objects[14]) {
		t.Errorf("by key: %v, %v, %+v", exists, err, one)
	}
	if _, exists, err := i.GetByKey("n7/o13"); exists || err != nil {
		t.Errorf("by the key of none: %v, %v", exists, err)
	}
	if err := i.Delete(objects[14]); err != nil {
		t.Fatal(err)
	}
	found, err = i.ByIndex(toolscache.NamespaceIndex, "n7")
	expect("a namespace that one left", each-1, found, err)
}

// told notes what a handler is told.
type told struct {
	mu   sync.Mutex
	said []string
}

func (h *told) note(what string, o any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, what+" "+o.(*corev1.ConfigMap).Name)
}

func (h *told) OnAdd(o any, _ bool)      { h.note("add", o) }
func (h *told) OnUpdate(before, now any) { h.note("from", before); h.note("to", now) }
func (h *told) OnDelete(o any) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		h.note("lost", last.Obj)
		return
	}
	h.note("delete", o)
}

func configMap(name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: version}}
}

func TestInformerTransformsOnceAndTellsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listed := []corev1.ConfigMap{*configMap("a", "1"), *configMap("b", "2")}
		watches := make(chan *watch.FakeWatcher, 1)
		watches <- watch.NewFake()
		i := newInformers()(&toolscache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "2"}, Items: listed}, nil
			},
			WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
				if options.SendInitialEvents != nil {
					return nil, apierrors.NewInvalid(schema.GroupKind{}, "", nil) // the operator does not ask for them
				}
				w := <-watches
				watches <- w
				return w, nil
			},
		}, &corev1.ConfigMap{}, 0, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
		transformed := map[string]int{}
		common := compact()
		if err := i.SetTransform(func(o any) (any, error) {
			transformed[o.(client.Object).GetName()]++
			return common(o)
		}); err != nil {
			t.Fatal(err)
		}
		h := &told{}
		if _, err := i.AddEventHandler(h); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go i.RunWithContext(ctx)
		synctest.Wait()
		w := <-watches
		w.Add(configMap("c", "3"))
		w.Modify(configMap("b", "4"))
		w.Delete(configMap("c", "5"))
		synctest.Wait()
		if diff := cmp.Diff(map[string]int{"a": 1, "b": 2, "c": 2}, transformed); diff != "" {
			t.Error(diff)
		}

		// The watch is cut off; when it lists again, one is gone.
		listed = []corev1.ConfigMap{*configMap("b", "4")}
		watches <- watch.NewFake()
		w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired})
		w.Stop()
		<-time.After(time.Minute)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		slices.Sort(h.said[:2])
		if diff := cmp.Diff([]string{"add a", "add b", "add c", "from b", "to b", "delete c", "lost a", "from b", "to b"}, h.said); diff != "" {
			t.Error(diff)
		}
		if got := i.GetStore().List(); len(got) != 1 || got[0].(*corev1.ConfigMap).Name != "b" {
			t.Errorf("kept %+v", got)
		}
	})
}

func TestListsTakeTurnsAndNoneKeepsAllWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		began := make(chan time.Duration, 2*listsAtOnce)
		turns := make(chan struct{}, listsAtOnce)
		for range 2 * listsAtOnce {
			stuck := &lists{turns: turns, from: toolscache.ToListerWatcherWithContext(&toolscache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
					began <- time.Since(start)
					<-ctx.Done()
					return nil, ctx.Err()
				},
			})}
			go func() { _, _ = stuck.list(t.Context(), metav1.ListOptions{}) }()
		}
		for n := range 2 * listsAtOnce {
			want := time.Duration(n/listsAtOnce) * longestTurn
			if got := <-began; got != want {
				t.Errorf("list %d began after %v, want %v", n, got, want)
			}
		}
	})
}
