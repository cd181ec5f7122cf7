package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

func unstructuredOf(apiVersion, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	return u
}

func clientGVK(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, clientscheme.Scheme)
}

// pipelineRun is one as Tekton's API has it.
func pipelineRun(modify ...func(spec map[string]any)) *unstructured.Unstructured {
	u := unstructuredOf("tekton.dev/v1", "PipelineRun", "run")
	spec := map[string]any{
		"pipelineRef": map[string]any{"name": "build"},
		"params":      []any{map[string]any{"name": "count", "value": int64(3)}},
		"timeouts":    map[string]any{"pipeline": "1h0m0s"},
		"debug":       false,
	}
	u.Object["spec"] = spec
	for _, m := range modify {
		m(spec)
	}
	return u
}

func TestKinds(t *testing.T) {
	for want, obj := range map[string]client.Object{
		"ConfigMap":              &corev1.ConfigMap{},
		"PipelineRun.tekton.dev": pipelineRun(),
		"*apply.unknown":         &unknown{},
	} {
		if got := objectKind(clientscheme.Scheme, obj).String(); got != want {
			t.Errorf("kindOf = %s, want %s", got, want)
		}
	}
}

func TestBlank(t *testing.T) {
	typed := blank[client.Object](&corev1.ConfigMap{Data: map[string]string{"a": "b"}})
	if diff := cmp.Diff(&corev1.ConfigMap{}, typed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun"}, blank(pipelineRun()).Object); diff != "" {
		t.Error(diff)
	}
}

func TestContainsUnstructured(t *testing.T) {
	param := func(spec map[string]any) map[string]any { return spec["params"].([]any)[0].(map[string]any) }
	for name, tc := range map[string]struct {
		live *unstructured.Unstructured
		want bool
	}{
		"same":                      {pipelineRun(), true},
		"a default filled in":       {pipelineRun(func(s map[string]any) { s["taskRunTemplate"] = map[string]any{"serviceAccountName": "default"} }), true},
		"a default in a map":        {pipelineRun(func(s map[string]any) { s["timeouts"].(map[string]any)["tasks"] = "30m0s" }), true},
		"a number as a float":       {pipelineRun(func(s map[string]any) { param(s)["value"] = float64(3) }), true},
		"what is false left out":    {pipelineRun(func(s map[string]any) { delete(s, "debug") }), true},
		"a number changed":          {pipelineRun(func(s map[string]any) { param(s)["value"] = int64(4) }), false},
		"a number as text":          {pipelineRun(func(s map[string]any) { param(s)["value"] = "3" }), false},
		"a text changed":            {pipelineRun(func(s map[string]any) { s["pipelineRef"].(map[string]any)["name"] = "evil" }), false},
		"what was false":            {pipelineRun(func(s map[string]any) { s["debug"] = true }), false},
		"a map removed":             {pipelineRun(func(s map[string]any) { delete(s, "pipelineRef") }), false},
		"a map that is text":        {pipelineRun(func(s map[string]any) { s["pipelineRef"] = "build" }), false},
		"an item added":             {pipelineRun(func(s map[string]any) { s["params"] = append(s["params"].([]any), map[string]any{}) }), false},
		"a list removed":            {pipelineRun(func(s map[string]any) { delete(s, "params") }), false},
		"a list that is a map":      {pipelineRun(func(s map[string]any) { s["params"] = map[string]any{} }), false},
		"all removed":               {unstructuredOf("tekton.dev/v1", "PipelineRun", "run"), false},
		"another version, the same": {func() *unstructured.Unstructured { u := pipelineRun(); u.SetAPIVersion("tekton.dev/v1beta1"); return u }(), true},
	} {
		if got := Contains(pipelineRun(), tc.live); got != tc.want {
			t.Errorf("%s: Contains = %v", name, got)
		}
	}
	status := pipelineRun()
	status.Object["status"] = map[string]any{"startTime": "now"}
	status.SetLabels(map[string]string{"others": "add"})
	if !Contains(pipelineRun(), status) || Contains(status, pipelineRun()) {
		t.Error("the status does not count, and labels do")
	}
	if Contains(pipelineRun(), &corev1.ConfigMap{}) {
		t.Error("an object of another representation")
	}
}

// An API may drop empty values, and numbers may exceed the precision of a float.
func TestContainsJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		desired, live any
		want          bool
	}{
		"nothing":                {nil, "x", true},
		"null and nothing":       {nil, nil, true},
		"an empty map dropped":   {map[string]any{}, nil, true},
		"an empty list dropped":  {[]any{}, nil, true},
		"an empty list filled":   {[]any{}, []any{"x"}, false},
		"an empty text dropped":  {"", nil, true},
		"a zero dropped":         {int64(0), nil, true},
		"an empty text filled":   {"", "x", false},
		"a nested value dropped": {map[string]any{"a": map[string]any{"b": "c"}}, nil, false},
		"large numbers, equal":   {int64(1<<62 + 1), int64(1<<62 + 1), true},
		"large numbers, near":    {int64(1<<62 + 1), int64(1 << 62), false},
		"a large float, near":    {int64(1<<62 + 1), float64(1 << 62), false},
		"a fraction":             {1.5, int64(1), false},
	} {
		if got := containsJSON(tc.desired, tc.live); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestChecksumOfAnUnstructuredPlan(t *testing.T) {
	sum := func(u *unstructured.Unstructured) string {
		if err := setChecksum(u, "example.com/plan-checksum"); err != nil {
			t.Fatal(err)
		}
		return u.GetAnnotations()["example.com/plan-checksum"]
	}
	same := sum(pipelineRun())
	twice := pipelineRun()
	sum(twice)
	if len(same) != 32 || sum(twice) != same {
		t.Errorf("%q and %q", same, sum(twice))
	}
	if sum(pipelineRun(func(s map[string]any) { delete(s, "debug") })) == same {
		t.Error("a field left out makes no other plan")
	}
	if sum(pipelineRun(func(s map[string]any) { s["params"].([]any)[0].(map[string]any)["value"] = float64(3) })) != same {
		t.Error("a number as a float makes another plan")
	}
	status := pipelineRun()
	status.Object["status"] = map[string]any{"startTime": "now"}
	if sum(status) != same {
		t.Error("the status makes another plan")
	}
}

func TestSuccessorOfAnUnstructuredObject(t *testing.T) {
	w := Writer{Manager: us, Client: schemeOnly{}}
	owner := ownership.Owner{Annotation: "example.com/uid", UID: "u"}
	live := pipelineRun(func(s map[string]any) { s["evil"] = true })
	live.SetResourceVersion("7")
	live.SetUID("live")
	live.SetFinalizers([]string{"example.com/f"})
	live.SetLabels(map[string]string{"others": "add"})
	live.SetManagedFields([]metav1.ManagedFieldsEntry{own, byHand})
	live.Object["status"] = map[string]any{"startTime": "now"}
	desired := pipelineRun()
	owner.SetOn(desired)

	got, err := successor(w, owner, desired, live)
	if err != nil {
		t.Fatal(err)
	}
	if got.GetResourceVersion() != "7" || got.GetUID() != "live" || len(got.GetFinalizers()) != 1 || got.GetLabels()["others"] != "add" || !owner.Owns(got) {
		t.Errorf("the metadata is %v", got.Object["metadata"])
	}
	if diff := cmp.Diff(desired.Object["spec"], got.Object["spec"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(live.Object["status"], got.Object["status"]); diff != "" {
		t.Errorf("the status: %s", diff)
	}
	if !Unmodified(us, got) || !Contains(desired, got) {
		t.Errorf("what is written is not what is wanted: %v", got.Object)
	}
	if _, has := desired.Object["status"]; has {
		t.Error("the plan was changed")
	}
}

// schemeOnly is a client that is asked for nothing but its scheme.
type schemeOnly struct{ client.Client }

func (schemeOnly) Scheme() *runtime.Scheme { return clientscheme.Scheme }
