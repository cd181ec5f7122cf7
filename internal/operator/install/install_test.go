package install

import (
	"os"
	"testing"
)

func TestEveryPolicyHasItsBinding(t *testing.T) {
	fence, err := os.ReadFile("../../../deploy/fence.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := parse(fence)
	if err != nil || len(objects) != 12 {
		t.Fatalf("%d objects: %v", len(objects), err)
	}
	kinds := map[string]int{}
	for _, o := range objects {
		if o.GetName() == "" || o.GetAPIVersion() != "admissionregistration.k8s.io/v1" {
			t.Errorf("%v", o)
		}
		kinds[o.GetKind()+" "+o.GetName()]++
	}
	for key, n := range kinds {
		if n != 1 {
			t.Errorf("%s is there %d times", key, n)
		}
	}
	if _, err := parse([]byte("a: [")); err == nil {
		t.Error("invalid YAML is accepted")
	}
}
