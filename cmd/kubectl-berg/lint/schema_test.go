package lint

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// apiServer validates a Challenge as an API server does.
type apiServer struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func newAPIServer(t *testing.T) apiServer {
	t.Helper()
	data, err := os.ReadFile("../../../config/berg/crd/bases/berg.norelect.ch_challenges.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &definition); err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return apiServer{structural, validator, cel.NewValidator(structural, true, math.MaxInt32)}
}

// refuses returns why the API server refuses a Challenge.
func (a apiServer) refuses(t *testing.T, challenge map[string]any) field.ErrorList {
	t.Helper()
	errs := validation.ValidateCustomResource(nil, challenge, a.schema)
	errs = append(errs, objectmeta.Validate(t.Context(), nil, challenge, a.structural, true)...)
	if len(errs) == 0 {
		broken, _ := a.rules.Validate(t.Context(), nil, a.structural, challenge, nil, math.MaxInt64)
		errs = append(errs, broken...)
	}
	return errs
}

// leaf is a field of the schema, and values that it may refuse.
type leaf struct {
	path   []any // of strings, and 0 for the first item of a list
	values []any
}

func leaves(at []any, s *structuralschema.Structural) (all []leaf) {
	add := func(values ...any) { all = append(all, leaf{slices.Clone(at), values}) }
	v := s.ValueValidation
	switch s.Type {
	case "object":
		for name := range s.Properties {
			property := s.Properties[name]
			all = append(all, leaves(append(slices.Clone(at), name), &property)...)
		}
		add("text", []any{"text"})
	case "array":
		all = append(all, leaves(append(slices.Clone(at), 0), s.Items)...)
		add("text", map[string]any{"a": "b"})
		if v != nil && v.MaxItems != nil {
			add(make([]any, *v.MaxItems+1))
		}
	case "string":
		add("", "No Such Word!", "nested ", "Always ", "UDP", "Nested", "tcp ", "/a/../b", "relative", strings.Repeat("a", 300), strings.Repeat("a", 70000), int64(7), true)
	case "integer":
		add(int64(-1), int64(0), int64(65536), int64(math.MaxInt32)+1, 1.5, "7", true)
	case "boolean":
		add("true", int64(1))
	default: // an integer or a string
		add("No Such Word!", "-1", int64(-1), "1 Gi", "512MB", 0.5, 1e30, true, strings.Repeat("1", 70))
	}
	return all
}

// with returns a good Challenge with another value in one field.
func with(path []any, value any) map[string]any {
	challenge := map[string]any{}
	good := head + "    command: [/a]\n    args: [b]\n    additionalCapabilities: [KILL]\n    environment: {A: b}\n"
	if err := yaml.Unmarshal([]byte(good), &challenge); err != nil {
		panic(err)
	}
	var set func(in any, path []any) any
	set = func(in any, path []any) any {
		if len(path) == 0 {
			return value
		}
		switch step := path[0].(type) {
		case string:
			object, _ := in.(map[string]any)
			if object == nil {
				object = map[string]any{}
			}
			object[step] = set(object[step], path[1:])
			return object
		default:
			list, _ := in.([]any)
			if len(list) == 0 {
				list = []any{nil}
			}
			list[0] = set(list[0], path[1:])
			return list
		}
	}
	return set(challenge, path).(map[string]any)
}

// An author who has no cluster at hand learns of each mistake that one would refuse.
func TestLintFindsWhatTheAPIServerRefuses(t *testing.T) {
	server := newAPIServer(t)
	if errs := server.refuses(t, with([]any{"metadata", "name"}, "a")); len(errs) > 0 {
		t.Fatalf("a good Challenge is refused: %v", errs)
	}
	spec := server.structural.Properties["spec"]
	refused := 0
	for _, l := range leaves([]any{"spec"}, &spec) {
		for _, value := range l.values {
			challenge := with(l.path, value)
			data, err := json.Marshal(challenge)
			if err != nil {
				t.Fatal(err)
			}
			errs := server.refuses(t, challenge)
			if len(errs) == 0 {
				continue
			}
			refused++
			found := Check(Source{Name: "a.json", Content: data, Named: true}, rules.Settings{Allowed: rules.Allowed{Capabilities: []string{"KILL"}, NestedSandbox: true}})
			if !slices.ContainsFunc(found.Findings, func(f Finding) bool { return f.Severity == Error }) {
				t.Errorf("%v: lint says nothing of %.80s: %v", l.path, fmt.Sprintf("%q", value), errs.ToAggregate())
			}
		}
	}
	if refused < 300 {
		t.Errorf("only %d values were refused: the test tries too little", refused)
	}
}
