package apply

import (
	"bytes"
	"math"
	"math/big"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Contains reports whether live has every label, annotation and field of desired with the
// same value. Fields that desired leaves out belong to the API server's defaults and to
// other controllers. Lists must have the same length, and maps outside the metadata the
// same keys, so that an addition by hand is a difference.
//
// In unstructured objects maps and structs cannot be distinguished: a key that desired leaves out
// is left to others, like a field. An addition is found by its owner in managedFields, which
// Unmodified checks.
func Contains(desired, live client.Object) bool {
	if !contains(live.GetLabels(), desired.GetLabels()) || !contains(live.GetAnnotations(), desired.GetAnnotations()) {
		return false
	}
	if owners, _ := splitOwners(desired, live); !equality.Semantic.DeepEqual(owners, desired.GetOwnerReferences()) {
		return false
	}
	if d, ok := desired.(runtime.Unstructured); ok {
		l, ok := live.(runtime.Unstructured)
		return ok && containsJSON(contentMap(d), contentMap(l))
	}
	d, l := reflect.ValueOf(desired).Elem(), reflect.ValueOf(live).Elem()
	for i := range d.NumField() {
		if slices.Contains(notContent, d.Type().Field(i).Name) {
			continue
		}
		if !containsValue(d.Field(i), l.Field(i)) {
			return false
		}
	}
	return true
}

func contains(all, part map[string]string) bool {
	for k, v := range part {
		if got, ok := all[k]; !ok || got != v {
			return false
		}
	}
	return true
}

var quantityType = reflect.TypeFor[resource.Quantity]()

// containsValue takes the zero value of a field for unset, since a plan cannot say it otherwise. Live fields that the plan does
// not set are left to the API server and to others.
func containsValue(desired, live reflect.Value) bool {
	if desired.IsZero() {
		return true
	}
	if desired.Type() == quantityType {
		d, l := desired.Interface().(resource.Quantity), live.Interface().(resource.Quantity)
		// 1000m and 1 are the same amount: the API server keeps the notation that it was sent, other programs use another one.
		return d.Cmp(l) == 0
	}
	switch desired.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !live.IsNil() && containsValue(desired.Elem(), live.Elem())
	case reflect.Struct:
		for i := range desired.NumField() {
			if desired.Type().Field(i).IsExported() && !containsValue(desired.Field(i), live.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		// Bytes are one value, as in a Secret. An element by element comparison would take a zero byte of the plan for an unset
		// field.
		if desired.Type().Elem().Kind() == reflect.Uint8 {
			return bytes.Equal(desired.Bytes(), live.Bytes())
		}
		if desired.Len() != live.Len() {
			// An empty list of a plan cannot be distinguished from an absent one: both are left to the API server. An addition to it
			// is found by Unmodified.
			return desired.Len() == 0
		}
		for i := range desired.Len() {
			if !containsValue(desired.Index(i), live.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if desired.Len() != live.Len() {
			return desired.Len() == 0
		}
		for _, key := range desired.MapKeys() {
			value := live.MapIndex(key)
			if !value.IsValid() || !containsValue(desired.MapIndex(key), value) {
				return false
			}
		}
		return true
	default:
		return desired.Equal(live)
	}
}

// containsJSON is containsValue for JSON values of an unstructured object: maps, slices,
// strings, booleans, int64 and float64. Values that are empty, false or zero may be missing in
// live. Quantities are strings here: another notation is a difference.
func containsJSON(desired, live any) bool {
	switch d := desired.(type) {
	case nil:
		return true
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok && live != nil {
			return false
		}
		for key, value := range d {
			if !containsJSON(value, l[key]) {
				return false
			}
		}
		return true
	case []any:
		l, ok := live.([]any)
		if !ok && live != nil || len(d) != len(l) {
			return false
		}
		for i := range d {
			if !containsJSON(d[i], l[i]) {
				return false
			}
		}
		return true
	}
	if live == nil {
		return reflect.ValueOf(desired).IsZero()
	}
	if d, ok := number(desired); ok {
		l, ok := number(live)
		return ok && d.Cmp(l) == 0
	}
	return reflect.DeepEqual(desired, live)
}

// number returns a JSON number without loss: 1 and 1.0 are the same, and two neighbours
// among the int64 are not.
func number(v any) (*big.Float, bool) {
	switch n := v.(type) {
	case int64:
		return new(big.Float).SetInt64(n), true
	case float64:
		if math.IsNaN(n) {
			return nil, false // not JSON
		}
		return big.NewFloat(n), true
	default:
		return nil, false
	}
}
