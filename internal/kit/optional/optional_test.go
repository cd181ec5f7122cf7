package optional

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// unasked is a client that must only be asked for the kind of an object.
type unasked struct{ client.Client }

func (unasked) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return schema.GroupVersionKind{}, err
	}
	return apiutil.GVKForObject(obj, scheme)
}

func TestMissingKindsCostNoRequest(t *testing.T) {
	presence := &Presence{}
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	presence.Set(gvk, true)
	c, err := presence.Clients(func(*rest.Config, client.Options) (client.Client, error) { return unasked{}, nil })(nil, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	live := presence.Reader(unasked{}, c.GroupVersionKindFor)
	obj, list := &corev1.ConfigMap{}, &corev1.ConfigMapList{}
	for name, err := range map[string]error{
		"get":           c.Get(t.Context(), client.ObjectKey{}, obj),
		"list":          c.List(t.Context(), list),
		"create":        c.Create(t.Context(), obj),
		"update":        c.Update(t.Context(), obj),
		"patch":         c.Patch(t.Context(), obj, client.MergeFrom(obj)),
		"delete":        c.Delete(t.Context(), obj),
		"delete all of": c.DeleteAllOf(t.Context(), obj),
		"live get":      live.Get(t.Context(), client.ObjectKey{}, obj),
		"live list":     live.List(t.Context(), list),
	} {
		if !meta.IsNoMatchError(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := presence.Check(corev1.SchemeGroupVersion.WithKind("Secret")); err != nil {
		t.Errorf("another kind: %v", err)
	}
	presence.Set(gvk, false)
	if err := presence.Check(gvk); err != nil {
		t.Errorf("it is there: %v", err)
	}
}

func TestNoClientNoGuard(t *testing.T) {
	fails := errors.New("no certificate")
	_, err := (&Presence{}).Clients(func(*rest.Config, client.Options) (client.Client, error) { return nil, fails })(nil, client.Options{})
	if !errors.Is(err, fails) {
		t.Error(err)
	}
}
