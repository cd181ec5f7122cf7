package apply

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// The API server keeps in metadata.managedFields which manager wrote which field last:
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
// Defaults, allotted values and additions of admission webhooks to our writes belong to
// us or to no manager. So a field outside metadata and status that another manager owns
// was changed by hand, also if no plan mentions it.

// Unmodified reports whether manager has written an object and no other manager owns a
// field outside metadata and status.
func Unmodified(manager string, obj metav1.Object) bool {
	written := false
	for _, e := range obj.GetManagedFields() {
		if isOwn(manager, e) {
			written = true
		} else if _, others := splitMetadata(e); others {
			return false
		}
	}
	return written
}

// Compact returns a transform for a cache. managedFields are a large part of an object;
// it keeps only what Unmodified needs.
func Compact(manager string) toolscache.TransformFunc {
	unmodified := []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate}}
	return func(o any) (any, error) {
		obj, err := meta.Accessor(o)
		if err != nil {
			return o, nil //nolint:nilerr // the last known state of an object that is gone
		}
		if Unmodified(manager, obj) {
			obj.SetManagedFields(unmodified)
		} else {
			obj.SetManagedFields(nil)
		}
		return o, nil
	}
}

// releaseOthers returns managedFields without the fields outside metadata and status that
// other managers own. They would otherwise survive a repair that finds the value in place,
// and be found again in every reconciliation.
//
// own is the entry that manager gets if it has none: the API server does not track changes
// of an object without entries.
func releaseOthers(entries []metav1.ManagedFieldsEntry, own metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for _, e := range entries {
		if isOwn(own.Manager, e) {
			own = e
		} else if rest, _ := splitMetadata(e); rest != nil {
			out = append(out, *rest)
		}
	}
	return append(out, own)
}

// ownEntry is the smallest entry that the API server keeps: that of the owner annotation.
func ownEntry(manager, apiVersion, annotation string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager:    manager,
		Operation:  metav1.ManagedFieldsOperationUpdate,
		APIVersion: apiVersion,
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + annotation + `":{}}}}`),
	}
}

// fieldOwners returns the other managers that own fields outside metadata and status.
func fieldOwners(manager string, obj metav1.Object) []string {
	var names []string
	for _, e := range obj.GetManagedFields() {
		if _, others := splitMetadata(e); others && !isOwn(manager, e) && !slices.Contains(names, e.Manager) {
			names = append(names, e.Manager)
		}
	}
	return names
}

// isOwn reports whether an entry is for writes of whole objects by manager.
func isOwn(manager string, e metav1.ManagedFieldsEntry) bool {
	return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
}

// splitMetadata returns the part of an entry in metadata and status, nil if there is none, and
// whether the entry has other fields.
func splitMetadata(e metav1.ManagedFieldsEntry) (rest *metav1.ManagedFieldsEntry, others bool) {
	if e.FieldsV1 == nil {
		return nil, false
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
		return nil, true
	}
	for name := range fields {
		if name != "f:metadata" && name != "f:status" {
			others = true
			delete(fields, name)
		}
	}
	if !others {
		return &e, false
	}
	if len(fields) == 0 {
		return nil, true
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, true
	}
	e.FieldsV1 = metav1.NewFieldsV1(string(raw))
	return &e, true
}
