package cache

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Everyone who may write in one namespace can set the labels by which a family finds its objects, on as many and as large
// objects as they like. So labels must not decide how much is kept in memory.
const (
	// MaxContent is the maximum size of the kept content of an object that was found by a label, in bytes: encoded, or as
	// JSON of a kind that has no encoding. Objects of our own are nearly always smaller. For a larger one apply reads the
	// content from the API server each time.
	MaxContent = 8 << 10
	// maxStatus is how many bytes of the status of a larger object are kept.
	maxStatus = MaxContent
	// maxKeys and maxValue bound the labels and annotations of a larger object and of custom resources, maxOwners their owner references.
	maxKeys, maxValue, maxOwners = 16, 256, 4
	// maxFinalizers bounds the finalizers of a larger object, and namedFinalizers the number of them whose text is kept: a
	// message about a deletion that is held back names these, and counts the rest.
	maxFinalizers, namedFinalizers = 256, 8
)

// reducedAnnotation is on cached objects whose content was dropped. It is never written to the API server. A user may set it on
// an object: then its content is read from the API server, which costs a request and no more.
const reducedAnnotation = "cache.kit/reduced"

// Reduced reports whether the content of a cached object was dropped because it was too large. A reader of more than the
// status and the family's own labels and annotations must then ask the API server.
func Reduced(o client.Object) bool { return o.GetAnnotations()[reducedAnnotation] != "" }

// bounded reports whether others decide how large an object is: all that is in a namespace, and namespaces.
func bounded(o client.Object) bool {
	_, namespace := o.(*corev1.Namespace)
	return namespace || o.GetNamespace() != ""
}

// tooLarge reports whether of an object of a family that has domains not everything is kept.
func tooLarge(o client.Object, domains []string, size func(client.Object) int) bool {
	return len(domains) > 0 && bounded(o) && size(o) > MaxContent
}

// reduce drops the content of an object, and of its metadata everything but its identity, its owners, its finalizers, and the labels and
// annotations of some domains. It keeps a small status.
func reduce(o client.Object, domains []string) {
	labels, annotations := ofDomains(o.GetLabels(), domains), ofDomains(o.GetAnnotations(), domains)
	owners := o.GetOwnerReferences()
	owners = slices.Clone(owners[:min(len(owners), maxOwners)])
	generation := o.GetGeneration()
	status, finalizers := boundedStatus(o), boundFinalizers(o)
	var ofNamespace []corev1.FinalizerName
	ns, isNamespace := o.(*corev1.Namespace)
	if isNamespace {
		ofNamespace = slices.Clone(ns.Spec.Finalizers[:min(len(ns.Spec.Finalizers), maxOwners)])
	}
	KeepIdentity(o)
	o.SetFinalizers(finalizers)
	if isNamespace {
		ns.Spec.Finalizers = ofNamespace // whether its content is still being deleted
	}
	o.SetGeneration(generation)
	o.SetOwnerReferences(owners)
	o.SetLabels(labels)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[reducedAnnotation] = "true"
	o.SetAnnotations(annotations)
	setStatus(o, status)
}

// boundFinalizers returns the finalizers of an object, the unnamed ones as empty texts.
func boundFinalizers(o client.Object) []string {
	all := o.GetFinalizers()
	if len(all) == 0 {
		return nil
	}
	kept := make([]string, min(len(all), maxFinalizers))
	for i := range min(len(kept), namedFinalizers) {
		kept[i] = strings.Clone(all[i][:min(len(all[i]), maxValue)])
	}
	return kept
}

// boundMetadata keeps the metadata of a custom resource that a family reads: labels and annotations of its domains, cut to a length,
// and some owner references. The spec stays, which the family reads. The family writes patches with the difference of two such objects, which
// leave the rest alone. A patch of finalizers sends all: package finalizer reads those of an object with many from the API server.
func boundMetadata(o client.Object, domains, finalizers []string) {
	shortened := func(all map[string]string) map[string]string {
		for key, value := range all {
			if len(value) > maxValue {
				all[key] = strings.Clone(value[:maxValue])
			}
		}
		return ofDomains(all, domains)
	}
	o.SetLabels(ofDomains(o.GetLabels(), domains))
	o.SetAnnotations(shortened(o.GetAnnotations()))
	owners := o.GetOwnerReferences()
	// The controller comes first, since it is the one owner that is looked up.
	slices.SortStableFunc(owners, func(a, b metav1.OwnerReference) int { return isController(b) - isController(a) })
	o.SetOwnerReferences(slices.Clone(owners[:min(len(owners), maxOwners)]))
	if all := o.GetFinalizers(); len(all) > maxKeys {
		kept := []string{unread}
		for n, name := range all {
			if n < namedFinalizers || slices.Contains(finalizers, name) {
				kept = append(kept, strings.Clone(name))
			}
		}
		o.SetFinalizers(kept)
	}
}

// unread stands for finalizers that are not kept. The API server accepts no finalizer of that name.
const unread = ""

// FinalizersReduced reports whether a cached object has finalizers that are not kept. A writer of finalizers must ask the API server for all.
func FinalizersReduced(o client.Object) bool { return slices.Contains(o.GetFinalizers(), unread) }

func isController(o metav1.OwnerReference) int {
	if o.Controller != nil && *o.Controller {
		return 1
	}
	return 0
}

// ofDomains returns the short ones among labels or annotations whose keys belong to some domains.
func ofDomains(all map[string]string, domains []string) map[string]string {
	var kept map[string]string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		domain, _, _ := strings.Cut(key, "/")
		if !slices.Contains(domains, domain) || len(all[key]) > maxValue {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		if kept[key] = all[key]; len(kept) == maxKeys {
			break
		}
	}
	return kept
}

// boundedStatus returns the status of an object, nil if it has none, or one that is too large.
func boundedStatus(o client.Object) any {
	var status any
	if u, ok := o.(*unstructured.Unstructured); ok {
		status = u.Object["status"]
	} else if field := reflect.ValueOf(o).Elem().FieldByName("Status"); field.IsValid() {
		status = field.Interface()
	}
	if data, err := json.Marshal(status); err != nil || len(data) > maxStatus {
		return nil
	}
	return status
}

func setStatus(o client.Object, status any) {
	if status == nil {
		return
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		u.Object["status"] = status
		return
	}
	reflect.ValueOf(o).Elem().FieldByName("Status").Set(reflect.ValueOf(status))
}

// Bound drops the content of an object as Options.Domains says. A family uses it in its Trim for custom resources of others that it
// finds by a label: only kinds of Kubernetes are bounded without it.
func Bound(o client.Object, domains ...string) {
	if tooLarge(o, domains, jsonSize) {
		reduce(o, domains)
	}
}

// jsonSize returns the size of an object as JSON, in bytes, without managedFields. The managed fields are restored, since the
// caller has reduced them and keeps them.
func jsonSize(o client.Object) int {
	var content any = o
	if u, ok := o.(*unstructured.Unstructured); ok {
		content = u.Object
	}
	managed := o.GetManagedFields()
	o.SetManagedFields(nil)
	data, err := json.Marshal(content)
	o.SetManagedFields(managed)
	if err != nil {
		return 0
	}
	return len(data)
}
