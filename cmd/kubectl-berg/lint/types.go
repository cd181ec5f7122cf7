package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

var (
	environmentValue = reflect.TypeFor[bergv1.EnvironmentValue]()
	amountType       = reflect.TypeFor[bergv1.Amount]()
	intOrString      = reflect.TypeFor[intstr.IntOrString]()
	timeType         = reflect.TypeFor[metav1.Time]()
	fieldsType       = reflect.TypeFor[metav1.FieldsV1]()
)

// types compares a Challenge with the types of its fields.
func (c *checker) types(value any) {
	c.walk("", reflect.TypeFor[bergv1.Challenge](), value, c.top)
}

func (c *checker) walk(at string, t reflect.Type, value any, node *yamlv3.Node) {
	if value == nil {
		return // null is the default everywhere
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case environmentValue:
		c.environment(at, value, node)
		return
	case amountType, intOrString:
		if _, isNumber := value.(json.Number); isNumber {
			return
		}
		t = reflect.TypeFor[string]()
	case timeType:
		t = reflect.TypeFor[string]()
	case fieldsType:
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		object, ok := value.(map[string]any)
		if !ok {
			c.wrong(at, "must be an object", value, node)
			return
		}
		known := fieldsOf(t)
		for _, name := range slices.Sorted(maps.Keys(object)) {
			to, isField := known[name]
			if !isField {
				c.addAt(Error, join(at, name), unknownField(name, known), orNode(child(node, name), node))
				continue
			}
			c.walk(join(at, name), to, object[name], orNode(child(node, name), node))
		}
	case reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			c.wrong(at, "must be an object of names and values", value, node)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if child(node, name) == nil {
				c.converted(at, name, node)
			}
			c.walk(at+"["+name+"]", t.Elem(), object[name], orNode(child(node, name), node))
		}
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			c.wrong(at, "must be a list: begin each item with a dash", value, node)
			return
		}
		for i, each := range list {
			c.walk(fmt.Sprintf("%s[%d]", at, i), t.Elem(), each, orNode(item(node, i), node))
		}
	case reflect.String:
		if _, ok := value.(string); !ok {
			c.wrong(at, "must be a string", value, node)
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			c.wrong(at, "must be true or false", value, node)
		}
	case reflect.Int32, reflect.Int64, reflect.Int:
		c.integer(at, value, node)
	case reflect.Float64:
		if _, ok := value.(json.Number); !ok {
			c.wrong(at, "must be a number", value, node)
		}
	}
}

func (c *checker) integer(at string, value any, node *yamlv3.Node) {
	number, ok := value.(json.Number)
	if text, isText := value.(string); isText && strings.HasSuffix(at, "Seconds") {
		c.addAt(Error, at, fmt.Sprintf("must be a whole number of seconds without a unit, not %q", text), node)
		return
	}
	if !ok {
		c.wrong(at, "must be a whole number", value, node)
		return
	}
	n, err := number.Int64()
	if err != nil || n != int64(int32(n)) {
		c.addAt(Error, at, fmt.Sprintf("must be a whole number within 32 bits: YAML makes %s of %s", number, textOf(node)), node)
		return
	}
	written := textOf(node)
	if written == "" || written == number.String() || strings.HasSuffix(at, ".mode") {
		return // rules read a mode
	}
	c.addAt(Error, at, fmt.Sprintf("%s means %s in YAML: write %s", written, number, strings.TrimLeft(strings.ReplaceAll(written, "_", ""), "0")), node)
}

// environment compares what the author wrote with what the program gets.
func (c *checker) environment(at string, value any, node *yamlv3.Node) {
	node = target(node)
	var got string
	switch value := value.(type) {
	case string:
		return // as it is written
	case json.Number:
		got = stored(value)
	case bool:
		got = fmt.Sprint(value)
	default:
		return // rules refuse lists and objects
	}
	if node == nil || node.Kind != yamlv3.ScalarNode || node.Value == got {
		return
	}
	severity := Error
	if strings.EqualFold(node.Value, got) {
		severity = Warning
	}
	c.addAt(severity, at, fmt.Sprintf("%s without quotes is %s in YAML, and the program gets %s: write \"%s\"", node.Value, nameOf(value), got, node.Value), node)
}

// stored returns a number as the API server stores it: it rounds a whole one that needs more than 64 bits with a sign.
func stored(number json.Number) string {
	_, err := number.Int64()
	f, invalid := number.Float64()
	if err == nil || invalid != nil {
		return number.String()
	}
	var v bergv1.EnvironmentValue
	data, err := json.Marshal(f)
	if err != nil || json.Unmarshal(data, &v) != nil {
		return number.String()
	}
	text, err := v.Text()
	if err != nil {
		return number.String()
	}
	return text
}

// converted adds the key of a map that YAML has made something else of, such as N, which becomes false.
func (c *checker) converted(at, name string, node *yamlv3.Node) {
	if node = target(node); node == nil || node.Kind != yamlv3.MappingNode {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		var as map[string]any
		if key.Style != 0 || yaml.Unmarshal([]byte(key.Value+":"), &as) != nil {
			continue
		}
		if _, is := as[name]; !is {
			continue
		}
		c.addAt(Error, at, fmt.Sprintf("%s without quotes becomes the name %s in YAML: write \"%s\"", key.Value, name, key.Value), key)
	}
}

// wrong adds a value of the wrong type in the spelling of the author.
func (c *checker) wrong(at, want string, value any, node *yamlv3.Node) {
	written := textOf(node)
	switch value.(type) {
	case map[string]any, []any:
		c.addAt(Error, at, fmt.Sprintf("%s, not %s", want, nameOf(value)), node)
		return
	}
	message := fmt.Sprintf("%s: %s is %s in YAML", want, written, nameOf(value))
	_, isText := value.(string)
	switch {
	case want == "must be a string":
		message += fmt.Sprintf(". Write \"%s\"", written)
	case isText && target(node).Style&(yamlv3.DoubleQuotedStyle|yamlv3.SingleQuotedStyle) != 0:
		message += ". Remove the quotes"
	}
	c.addAt(Error, at, message, node)
}

func nameOf(value any) string {
	switch value.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case json.Number:
		return "a number"
	case bool:
		return "a boolean"
	default:
		return "a string"
	}
}

// fieldsOf returns the types of a struct's fields by their name in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case strings.Contains(options, "inline"), name == "" && f.Anonymous:
			maps.Copy(all, fieldsOf(f.Type))
		case name != "":
			all[name] = f.Type
		}
	}
	return all
}

// unknownField suggests the field that has the same letters in any case, or begins alike.
func unknownField(name string, known map[string]reflect.Type) string {
	clean := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	for _, candidate := range slices.Sorted(maps.Keys(known)) {
		a, b := clean(candidate), clean(name)
		if a == b || a+"s" == b || a == b+"s" || len(b) > 2 && strings.HasSuffix(a, b) || len(b) > 2 && strings.HasPrefix(a, b) {
			return "is no field: did you mean " + candidate + "?"
		}
	}
	return "is no field: remove it. Fields here are " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func orNode(node, other *yamlv3.Node) *yamlv3.Node {
	if node == nil {
		return other
	}
	return node
}
