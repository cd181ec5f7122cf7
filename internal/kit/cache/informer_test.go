package cache

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// recorder notes the calls of a handler.
type recorder struct {
	mu   sync.Mutex
	said []string
}

func (h *recorder) note(what string, o any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, what+" "+o.(*corev1.ConfigMap).Name)
}

func (h *recorder) OnAdd(o any, _ bool)      { h.note("add", o) }
func (h *recorder) OnUpdate(before, now any) { h.note("from", before); h.note("to", now) }
func (h *recorder) OnDelete(o any) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		h.note("lost", last.Obj)
		return
	}
	h.note("delete", o)
}

func configMap(name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: version}}
}

func TestInformerTransformsOnceAndHandlersGetObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listed := []corev1.ConfigMap{*configMap("a", "1"), *configMap("b", "2")}
		watches := make(chan *watch.FakeWatcher, 1)
		watches <- watch.NewFake()
		i := newInformers(make(chan struct{}, maxLists))(&toolscache.ListWatch{
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
		common := New("test").transform(Options{})
		if err := i.SetTransform(func(o any) (any, error) {
			transformed[o.(client.Object).GetName()]++
			return common(o)
		}); err != nil {
			t.Fatal(err)
		}
		h := &recorder{}
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
