package apply

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
)

const us = "operator"

func entry(manager, subresource, fields string, operation ...metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
	e := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource,
		APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	}
	if len(operation) > 0 {
		e.Operation = operation[0]
	}
	return e
}

var (
	own    = entry(us, "", `{"f:metadata":{"f:labels":{}},"f:spec":{"f:ports":{}}}`)
	status = entry("kube-controller-manager", "status", `{"f:metadata":{"f:annotations":{}},"f:status":{}}`)
	label  = entry("argocd", "", `{"f:metadata":{"f:labels":{"f:team":{}}}}`, metav1.ManagedFieldsOperationApply)
	byHand = entry("kubectl-edit", "", `{"f:metadata":{"f:labels":{"f:x":{}}},"f:spec":{"f:externalIPs":{}}}`)
	scaled = entry("kubectl", "scale", `{"f:spec":{"f:replicas":{}}}`)
)

func TestUnmodified(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    bool
	}{
		"written by us":                 {[]metav1.ManagedFieldsEntry{own}, true},
		"status and metadata of others": {[]metav1.ManagedFieldsEntry{own, status, label}, true},
		"a field of the spec owned":     {[]metav1.ManagedFieldsEntry{own, byHand}, false},
		"scaled":                        {[]metav1.ManagedFieldsEntry{own, scaled}, false},
		"data of a ConfigMap owned":     {[]metav1.ManagedFieldsEntry{own, entry("x", "", `{"f:data":{}}`)}, false},
		"applied under our name":        {[]metav1.ManagedFieldsEntry{own, entry(us, "", `{"f:spec":{}}`, metav1.ManagedFieldsOperationApply)}, false},
		"scaled under our name":         {[]metav1.ManagedFieldsEntry{own, entry(us, "scale", `{"f:spec":{}}`)}, false},
		"fields that cannot be read":    {[]metav1.ManagedFieldsEntry{own, entry("x", "", `[`)}, false},
		"never written by us":           {[]metav1.ManagedFieldsEntry{status}, false},
		"managedFields emptied by hand": {nil, false},
		"an entry without fields":       {[]metav1.ManagedFieldsEntry{own, {Manager: "x"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			object := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.entries}}
			if got := Unmodified(us, object); got != tc.want {
				t.Errorf("Unmodified = %v, want %v", got, tc.want)
			}
			// An informer may transform an object twice.
			for range 2 {
				if _, err := Compact(us)(object); err != nil {
					t.Fatal(err)
				}
				if got := Unmodified(us, object); got != tc.want {
					t.Errorf("Unmodified after Compact = %v, want %v", got, tc.want)
				}
				for _, e := range object.ManagedFields {
					if e.FieldsV1 != nil {
						t.Errorf("fields are kept in memory: %s", e.FieldsV1.GetRawString())
					}
				}
			}
		})
	}
}

func TestReleaseOthers(t *testing.T) {
	fresh := ownManagedFields(us, "v1", "example.com/uid")
	kept := entry("kubectl-edit", "", `{"f:metadata":{"f:labels":{"f:x":{}}}}`)
	for name, tc := range map[string]struct{ entries, want []metav1.ManagedFieldsEntry }{
		"metadata and status stay":        {[]metav1.ManagedFieldsEntry{own, status, label}, []metav1.ManagedFieldsEntry{status, label, own}},
		"a field of the spec goes":        {[]metav1.ManagedFieldsEntry{own, byHand}, []metav1.ManagedFieldsEntry{kept, own}},
		"an entry that is only that goes": {[]metav1.ManagedFieldsEntry{own, scaled}, []metav1.ManagedFieldsEntry{own}},
		"never without an entry":          {nil, []metav1.ManagedFieldsEntry{fresh}},
	} {
		t.Run(name, func(t *testing.T) {
			got := releaseOthers(tc.entries, fresh)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("releaseOthers (-want +got):\n%s", diff)
			}
			if !Unmodified(us, &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: got}}) {
				t.Error("the released entries still count as a modification")
			}
		})
	}
}

func TestFieldOwners(t *testing.T) {
	object := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{own, status, byHand, scaled, byHand}}}
	if diff := cmp.Diff([]string{"kubectl-edit", "kubectl"}, fieldOwners(us, object)); diff != "" {
		t.Error(diff)
	}
}

// The reason why Contains has to compare values: after a removal by others no manager owns the
// field, so that Unmodified does not find it.
func TestRemovedFieldsHaveNoOwner(t *testing.T) {
	fields := managedfieldstest.NewTestFieldManager(managedfields.NewDeducedTypeConverter(), pipelineRun().GroupVersionKind())
	if err := fields.Update(pipelineRun(), us); err != nil {
		t.Fatal(err)
	}
	removed := fields.Live().(*unstructured.Unstructured).DeepCopy()
	unstructured.RemoveNestedField(removed.Object, "spec", "timeouts")
	if err := fields.Update(removed, "kubectl"); err != nil {
		t.Fatal(err)
	}
	live := fields.Live().(*unstructured.Unstructured)
	if !Unmodified(us, live) || Contains(pipelineRun(), live) {
		t.Errorf("a removed field has an owner, or is not missing: %v", live.GetManagedFields())
	}
}

// A new leader decides from the object what admission has changed: the fields of such a change stay with us.
func TestOwnsAll(t *testing.T) {
	desired := newService(func(s *corev1.Service) { s.Annotations = map[string]string{"example.com/sum": "1"} })
	fields := `{"f:metadata":{"f:annotations":{".":{},"f:example.com/sum":{}},"f:labels":{".":{},"f:a":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"u\"}":{}}},` +
		`"f:spec":{"f:selector":{"f:app":{}},"f:type":{},"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}}}}`
	withFields := func(old, replacement string) *corev1.Service {
		t.Helper()
		if !strings.Contains(fields, old) {
			t.Fatalf("%s is not in %s", old, fields)
		}
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{status, entry(us, "", strings.Replace(fields, old, replacement, 1))}}}
	}
	for name, tc := range map[string]struct {
		live *corev1.Service
		want bool
	}{
		"everything":                 {withFields("", ""), true},
		"a list as a whole":          {withFields(`{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}}`, `{}`), true},
		"a field that was removed":   {withFields(`"f:selector":{"f:app":{}},`, ``), false},
		"a key that was removed":     {withFields(`"f:app":{}`, `"f:other":{}`), false},
		"a field of an item removed": {withFields(`"f:name":{},`, ``), false},
		"an item that was removed":   {withFields(`\"port\":80`, `\"port\":81`), false},
		"a label that was removed":   {withFields(`"f:a":{}`, ``), false},
		"no entry of ours":           {&corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{status, byHand}}}, false},
		"what the cache keeps":       {&corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: us, Operation: metav1.ManagedFieldsOperationUpdate}}}}, false},
	} {
		if got := ownsAll(us, desired, tc.live); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
