package apply

import (
	"bytes"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Covers reports whether live is what desired asks for: every label, annotation
// and field that desired sets has that value in live. Fields that desired leaves
// out belong to the API server's defaults and to other controllers. Lists must
// have the same length, and maps below the metadata the same keys, so that an
// addition by hand is a difference.
func Covers(desired, live client.Object) bool {
	if !contains(live.GetLabels(), desired.GetLabels()) || !contains(live.GetAnnotations(), desired.GetAnnotations()) {
		return false
	}
	if owners, _ := splitOwners(desired, live); !equality.Semantic.DeepEqual(owners, desired.GetOwnerReferences()) {
		return false
	}
	d, l := reflect.ValueOf(desired).Elem(), reflect.ValueOf(live).Elem()
	for i := range d.NumField() {
		switch d.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
			continue
		}
		if !covers(d.Field(i), l.Field(i)) {
			return false
		}
	}
	return true
}

func contains(all, some map[string]string) bool {
	for k, v := range some {
		if got, ok := all[k]; !ok || got != v {
			return false
		}
	}
	return true
}

var quantityType = reflect.TypeFor[resource.Quantity]()

func covers(desired, live reflect.Value) bool {
	if desired.IsZero() {
		return true
	}
	if desired.Type() == quantityType {
		d, l := desired.Interface().(resource.Quantity), live.Interface().(resource.Quantity)
		return d.Cmp(l) == 0
	}
	switch desired.Kind() {
	case reflect.Pointer, reflect.Interface:
		return !live.IsNil() && covers(desired.Elem(), live.Elem())
	case reflect.Struct:
		for i := range desired.NumField() {
			if desired.Type().Field(i).IsExported() && !covers(desired.Field(i), live.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if desired.Type().Elem().Kind() == reflect.Uint8 {
			return bytes.Equal(desired.Bytes(), live.Bytes())
		}
		if desired.Len() != live.Len() {
			return desired.Len() == 0
		}
		for i := range desired.Len() {
			if !covers(desired.Index(i), live.Index(i)) {
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
			if !value.IsValid() || !covers(desired.MapIndex(key), value) {
				return false
			}
		}
		return true
	default:
		return desired.Equal(live)
	}
}
