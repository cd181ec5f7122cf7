package examples

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

var _ = add(family{addToScheme: quixv1.AddToScheme, tried: environments})

func environments(all []unstructured.Unstructured, at place) (tried []resource, _ error) {
	for _, e := range all {
		if e.GetKind() == "Environment" && e.GroupVersionKind().Group == quixv1.GroupVersion.Group {
			env, err := read[quixv1.Environment](e)
			if err != nil {
				return nil, err
			}
			tried = append(tried, environment(env, at.prefix))
		}
	}
	return tried, nil
}

// environment gives the example of an Environment a unique name and a unique ID.
func environment(e *quixv1.Environment, prefix string) resource {
	example := e.Name
	e.ObjectMeta = metav1.ObjectMeta{Name: prefix + e.Name}
	e.Spec.ID = prefix + e.Spec.ID
	return resource{
		Object: e, example: example,
		runs: string(quixv1.PhaseReady), fails: string(quixv1.PhaseFailed),
		phase:      func() string { return string(e.Status.Phase) },
		conditions: func() []metav1.Condition { return e.Status.Conditions },
		namespace: func() string {
			if e.Status.NamespaceStatus == nil {
				return ""
			}
			return e.Status.NamespaceStatus.ResourceName
		},
	}
}
