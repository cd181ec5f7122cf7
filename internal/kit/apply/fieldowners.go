package apply

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API server keeps in metadata.managedFields which manager wrote which field last:
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
// Defaults, allotted values and additions of admission webhooks to our writes belong to
// us or to no manager. So a field outside metadata and status that another manager owns
// was changed by hand, also if no plan mentions it.

// Unmodified reports whether manager has written an object and no other manager owns a
// field outside metadata and status. An object without an entry of manager counts as modified: another client has replaced its
// managedFields, or an earlier version of the operator wrote it under another name.
func Unmodified(manager string, obj metav1.Object) bool {
	written := false
	for _, e := range obj.GetManagedFields() {
		if isOwn(manager, e) {
			written = true
		} else if _, foreign := splitMetadata(e); foreign {
			return false
		}
	}
	return written
}

// Compact returns a transform for a cache. managedFields are a large part of an object; it keeps
// only the entries that Unmodified needs. It must give the same answer for the object that it returns, because a cache may
// transform an object twice.
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

// releaseOthers returns managedFields without the fields outside metadata and status that other
// managers own. They would otherwise survive a repair that finds the right value, and be found
// again in every reconciliation.
//
// own is the entry that manager gets if it has none: the API server does not track changes
// of an object without entries.
func releaseOthers(managed []metav1.ManagedFieldsEntry, own metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var out []metav1.ManagedFieldsEntry
	for _, e := range managed {
		if isOwn(own.Manager, e) {
			own = e
		} else if rest, _ := splitMetadata(e); rest != nil {
			out = append(out, *rest)
		}
	}
	return append(out, own)
}

// ownManagedFields returns the smallest entry that the API server keeps: it owns the owner annotation.
func ownManagedFields(manager, apiVersion, annotation string) metav1.ManagedFieldsEntry {
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
		if _, foreign := splitMetadata(e); foreign && !isOwn(manager, e) && !slices.Contains(names, e.Manager) {
			names = append(names, e.Manager)
		}
	}
	return names
}

// ownsAll reports whether manager still owns everything that desired sets. A manager that changes a field becomes its
// owner, and a field that another manager removes has none. Admission changes no owner: the API server computes the
// owners first. An object that is only partly owned is repaired, which takes the rest over.
func ownsAll(manager string, desired client.Object, live metav1.Object) bool {
	data, err := json.Marshal(desired)
	if err != nil {
		return false
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return false
	}
	for _, name := range []string{"apiVersion", "kind", "status"} {
		delete(fields, name)
	}
	if all, ok := fields["metadata"].(map[string]any); ok {
		part := map[string]any{}
		for _, name := range []string{"labels", "annotations", "ownerReferences"} {
			part[name] = all[name]
		}
		fields["metadata"] = part
	}
	for _, e := range live.GetManagedFields() {
		if !isOwn(manager, e) || e.FieldsV1 == nil {
			continue
		}
		var ours map[string]any
		if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &ours); err == nil && ownsFields(ours, fields) {
			return true
		}
	}
	return false
}

// ownsFields reports whether a set of fields, in the format of managedFields, has all fields of an object.
func ownsFields(ours, fields map[string]any) bool {
	for name, value := range fields {
		if isEmpty(value) {
			continue
		}
		fields, ok := ours["f:"+name].(map[string]any)
		if !ok || !ownsValue(fields, value) {
			return false
		}
	}
	return true
}

// ownsValue is ownsFields for a value, whose owned fields are fields. A value without any is owned as a whole.
func ownsValue(fields map[string]any, value any) bool {
	if len(fields) == 0 {
		return true
	}
	switch v := value.(type) {
	case map[string]any:
		return ownsFields(fields, v)
	case []any:
		for _, item := range v {
			if !ownsItem(fields, item) {
				return false
			}
		}
	}
	return true
}

// ownsItem reports whether the owned fields of a list have an item, by its keys or by its value. Keys that the item
// leaves out have defaults.
func ownsItem(fields map[string]any, item any) bool {
	for name, inner := range fields {
		kind, text, _ := strings.Cut(name, ":")
		var identity any
		if kind != "k" && kind != "v" || json.Unmarshal([]byte(text), &identity) != nil {
			continue
		}
		if kind == "v" {
			if reflect.DeepEqual(identity, item) {
				return true
			}
			continue
		}
		fields, isMap := item.(map[string]any)
		keys, keyed := identity.(map[string]any)
		ours, known := inner.(map[string]any)
		if isMap && keyed && known && hasKeys(keys, fields) && ownsValue(ours, fields) {
			return true
		}
	}
	return false
}

// hasKeys reports whether an item has these keys, as far as it names them.
func hasKeys(keys, item map[string]any) bool {
	named := false
	for name, want := range keys {
		if got, ok := item[name]; ok {
			if !reflect.DeepEqual(got, want) {
				return false
			}
			named = true
		}
	}
	return named
}

// isEmpty reports whether the API server may drop a value when it stores it.
func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, inner := range v {
			if !isEmpty(inner) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	default:
		return false
	}
}

// isOwn reports whether an entry is for writes of whole objects by manager.
func isOwn(manager string, e metav1.ManagedFieldsEntry) bool {
	return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
}

// splitMetadata returns the part of an entry in metadata and status, nil if there is none, and
// whether the entry has other fields. An entry whose fields cannot be decoded counts as foreign: a needless write is the smaller
// harm.
func splitMetadata(e metav1.ManagedFieldsEntry) (rest *metav1.ManagedFieldsEntry, foreign bool) {
	if e.FieldsV1 == nil {
		return nil, false
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields); err != nil {
		return nil, true
	}
	for name := range fields {
		if name != "f:metadata" && name != "f:status" {
			foreign = true
			delete(fields, name)
		}
	}
	if !foreign {
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
