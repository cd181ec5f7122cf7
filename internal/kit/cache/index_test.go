package cache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestIndexFindsObjectsByValue(t *testing.T) {
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
		kept, err := encode(o)
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
