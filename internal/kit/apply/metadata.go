package apply

import (
	"encoding/json"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// record is the content of Writer.Record: sorted keys.
type record struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// note records in desired which labels and annotations it has. The record travels in the same write as the keys, so after a kill
// either both are stored or none.
func (w Writer) note(desired client.Object) {
	if w.Record == "" {
		return
	}
	annotations := maps.Clone(desired.GetAnnotations())
	delete(annotations, w.Record)
	text, _ := json.Marshal(record{ // lists of strings always have a JSON form
		Labels:      slices.Sorted(maps.Keys(desired.GetLabels())),
		Annotations: slices.Sorted(maps.Keys(annotations)),
	})
	annotations[w.Record] = string(text)
	desired.SetAnnotations(annotations)
}

// noted returns the record of the last write of live; nothing if the record is missing or
// invalid, since it is then unknown which keys are ours.
func (w Writer) noted(live client.Object) record {
	var r record
	if w.Record == "" || json.Unmarshal([]byte(live.GetAnnotations()[w.Record]), &r) != nil {
		return record{}
	}
	return r
}

// merged returns live without our earlier keys, and with the wanted ones.
func merged(live map[string]string, ours []string, wanted map[string]string) map[string]string {
	out := make(map[string]string, len(live)+len(wanted))
	maps.Copy(out, live)
	for _, key := range ours {
		delete(out, key)
	}
	maps.Copy(out, wanted)
	return out
}

// splitOwners returns the owner references of live that have the kinds of desired's, and
// the others, which belong to other controllers. All owner references of a network policy are ours to remove: an owner that
// is deleted in the foreground takes the policy along before the pods, and one that does not exist does so immediately.
func splitOwners(desired, live client.Object) (ours, foreign []metav1.OwnerReference) {
	if confines(desired) {
		return live.GetOwnerReferences(), nil
	}
	for _, owner := range live.GetOwnerReferences() {
		if slices.ContainsFunc(desired.GetOwnerReferences(), func(d metav1.OwnerReference) bool { return ownerKind(d) == ownerKind(owner) }) {
			ours = append(ours, owner)
		} else {
			foreign = append(foreign, owner)
		}
	}
	return ours, foreign
}

func ownerKind(r metav1.OwnerReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).GroupKind()
}
