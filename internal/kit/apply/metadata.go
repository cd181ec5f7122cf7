package apply

import (
	"encoding/json"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// record is the content of Writer.Record: keys, sorted.
type record struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// note writes into desired which labels and annotations it wants.
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

// noted returns what was wanted when live was written last; nothing when the
// note is missing or was changed, since it is then unknown what was ours.
func (w Writer) noted(live client.Object) record {
	var r record
	if w.Record == "" || json.Unmarshal([]byte(live.GetAnnotations()[w.Record]), &r) != nil {
		return record{}
	}
	return r
}

// merged returns live without the keys that were ours, and with what is wanted.
func merged(live map[string]string, ours []string, wanted map[string]string) map[string]string {
	out := make(map[string]string, len(live)+len(wanted))
	maps.Copy(out, live)
	for _, key := range ours {
		delete(out, key)
	}
	maps.Copy(out, wanted)
	return out
}

// splitOwners returns the owners of live that are of the kinds of desired's
// owners, and the others, which do not concern us.
func splitOwners(desired, live client.Object) (ours, foreign []metav1.OwnerReference) {
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
