package apply

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// The API server keeps in metadata.managedFields who wrote which field last:
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
// Defaults, allotted values and what admission adds to our writes are ours or
// nobody's. So a claim of somebody else outside the metadata and the status is
// a change by hand, also of a field that no plan mentions.

// Undisturbed reports whether manager has written an object and nobody else
// claims anything of it but metadata and status.
func Unmodified(manager string, obj metav1.Object) bool {
	written := false
	for _, e := range obj.GetManagedFields() {
		if isOwn(manager, e) {
			written = true
		} else if _, claims := splitMetadata(e); claims {
			return false
		}
	}
	return written
}

// Compact returns a transform for a cache: of managedFields, which make up a
// large part of an object, it keeps what Undisturbed asks for and nothing else.
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

// yield returns managedFields without the claims of others outside metadata and
// status. They would otherwise outlast a repair that finds the value in place,
// and be found again at every pass.
//
// own is the entry that manager gets when it has none: of an object without any
// entry the API server records no changes.
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

// ownEntry is the least claim that the API server keeps: that of the proof.
func ownEntry(manager, apiVersion, annotation string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager:    manager,
		Operation:  metav1.ManagedFieldsOperationUpdate,
		APIVersion: apiVersion,
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + annotation + `":{}}}}`),
	}
}

// claimants names who else claims anything but metadata and status.
func fieldOwners(manager string, obj metav1.Object) []string {
	var names []string
	for _, e := range obj.GetManagedFields() {
		if _, claims := splitMetadata(e); claims && !isOwn(manager, e) && !slices.Contains(names, e.Manager) {
			names = append(names, e.Manager)
		}
	}
	return names
}

// isOwn reports whether an entry stands for writes of whole objects by manager.
func isOwn(manager string, e metav1.ManagedFieldsEntry) bool {
	return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
}

// yielded returns what of an entry concerns metadata and status, nil if nothing
// does, and whether there was anything else in it.
func splitMetadata(e metav1.ManagedFieldsEntry) (rest *metav1.ManagedFieldsEntry, claims bool) {
	if e.FieldsV1 == nil {
		return nil, false
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
		return nil, true
	}
	for name := range fields {
		if name != "f:metadata" && name != "f:status" {
			claims = true
			delete(fields, name)
		}
	}
	if !claims {
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
