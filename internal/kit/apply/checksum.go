package apply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// checksum identifies the content of an object.
type checksum [sha256.Size]byte

// text is half of a checksum: 128 bits distinguish two plans.
func (c checksum) text() string { return hex.EncodeToString(c[:sha256.Size/2]) }

// ChecksumAnnotation is the annotation with the checksum of the plan that an object was written
// from, in the domain of the owner annotation. The comparison of values finds fields that a plan
// adds, but no fields that an earlier plan had and this one leaves out.
func ChecksumAnnotation(owner string) string {
	domain, _, _ := strings.Cut(owner, "/")
	return domain + "/plan-checksum"
}

// contentChecksum returns the checksum of an object without its status and without metadata of
// others: it includes only the labels and annotations of like.
func contentChecksum(obj, like client.Object) (checksum, error) {
	var bare any
	if u, ok := obj.(runtime.Unstructured); ok {
		bare = contentMap(u)
	} else {
		// The fields are emptied in a copy. The object itself may be shared by all readers of a cache.
		bare = obj.DeepCopyObject()
		for _, name := range notContent {
			if field := reflect.ValueOf(bare).Elem().FieldByName(name); field.IsValid() {
				field.SetZero()
			}
		}
	}
	data, err := json.Marshal(struct {
		Labels, Annotations map[string]string
		Object              any
	}{only(obj.GetLabels(), like.GetLabels()), only(obj.GetAnnotations(), like.GetAnnotations()), bare})
	if err != nil {
		return checksum{}, fmt.Errorf("encode %T %s: %w", obj, obj.GetName(), err)
	}
	return sha256.Sum256(data), nil
}

// setChecksum writes the checksum of a plan to its object. It is the same each time.
// Node ports are allotted: a plan has them only if they are known already. It leaves the annotation itself out of the sum, or
// each plan would change its own checksum.
func setChecksum(desired client.Object, annotation string) error {
	plan := desired.DeepCopyObject().(client.Object)
	annotations := plan.GetAnnotations()
	delete(annotations, annotation)
	plan.SetAnnotations(annotations)
	if service, ok := plan.(*corev1.Service); ok {
		// The first plan of a Service has no numbers and the next one has, without any change of the intent.
		forgetNodePorts(service)
	}
	sum, err := contentChecksum(plan, plan)
	if err != nil {
		return err
	}
	desired.SetAnnotations(merged(desired.GetAnnotations(), nil, map[string]string{annotation: sum.text()}))
	return nil
}

// only returns the pairs of all whose keys are wanted.
func only(all, wanted map[string]string) map[string]string {
	out := make(map[string]string, len(wanted))
	for key := range wanted {
		if value, ok := all[key]; ok {
			out[key] = value
		}
	}
	return out
}
