package lint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

// The types that have their own way of decoding.
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

// walk compares a value with the Go type of its field, as the API server decodes it. node is the value's position in
// the source.
func (c *checker) walk(path string, t reflect.Type, value any, node *yamlv3.Node) {
	if t == environmentValue {
		c.environment(path, value, node)
		return
	}
	if value == nil {
		return // null is the default everywhere
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if c.empty(path, value, node) {
		return
	}
	switch t {
	case amountType, intOrString:
		switch value := value.(type) {
		case json.Number:
			c.whole(path, value, node)
		case string: // rules read it
		default:
			c.wrong(path, "must be a number, or one with a unit", value, node)
		}
		return
	case timeType:
		t = reflect.TypeFor[string]()
	case fieldsType:
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		object, ok := value.(map[string]any)
		if !ok {
			c.wrong(path, "must be an object", value, node)
			return
		}
		known := jsonFields(t)
		for _, name := range slices.Sorted(maps.Keys(object)) {
			to, isField := known[name]
			if !isField {
				c.addAt(Error, join(path, name), unknownField(path, name, known), orNode(yamlnode.Child(node, name), node))
				continue
			}
			c.walk(join(path, name), to, object[name], orNode(yamlnode.Child(node, name), node))
		}
	case reflect.Map:
		object, ok := value.(map[string]any)
		if !ok {
			c.wrong(path, "must be an object of names and values", value, node)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			c.converted(path, name, node)
			c.walk(path+"["+name+"]", t.Elem(), object[name], orNode(yamlnode.Child(node, name), node))
		}
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			c.wrong(path, "must be a list: begin each item with a dash", value, node)
			return
		}
		for i, each := range list {
			c.walk(fmt.Sprintf("%s[%d]", path, i), t.Elem(), each, orNode(yamlnode.Item(node, i), node))
		}
	case reflect.String:
		if _, ok := value.(string); !ok {
			c.wrong(path, "must be a string", value, node)
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			c.wrong(path, "must be true or false", value, node)
		}
	case reflect.Int32, reflect.Int64, reflect.Int:
		c.integer(path, value, node)
	case reflect.Float64:
		if _, ok := value.(json.Number); !ok {
			c.wrong(path, "must be a number", value, node)
		}
	}
}

// notEmpty are fields that have a default where they are missing, and are refused where they are empty.
var notEmpty = regexp.MustCompile(`\.ports\[\d+\]\.(protocol|type)$|\.(imagePullPolicy|sandbox|dynamicFlagMode|hideUntil|maxInstances)$`)

// empty adds a field that must not be written without a value.
func (c *checker) empty(path string, value any, node *yamlv3.Node) bool {
	if !notEmpty.MatchString(path) || value != "" && value != json.Number("0") {
		return false
	}
	c.addAt(Error, path, "must not be empty: remove it for the default", node)
	return true
}

// plainNumber matches numbers that YAML keeps as they are written.
var plainNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)?$`)

// whole adds a number that is not whole, where the API server takes whole numbers and texts.
func (c *checker) whole(path string, number json.Number, node *yamlv3.Node) {
	if _, err := number.Int64(); err != nil {
		c.addAt(Error, path, fmt.Sprintf("must be a whole number or a text, and %s without quotes is neither in YAML: write \"%s\"", scalarText(node), scalarText(node)), node)
		return
	}
	c.spelled(path, number, node)
}

// spelled adds a number that YAML reads in another way than people do, such as 010.
func (c *checker) spelled(path string, number json.Number, node *yamlv3.Node) {
	if written := scalarText(node); !plainNumber.MatchString(written) {
		c.addAt(Error, path, fmt.Sprintf("%s means %s in YAML: write %s", written, number, decimal(written, number)), node)
	}
}

// decimal returns the number that the author probably meant: the digits as they are, or the value in YAML of another
// notation.
func decimal(written string, number json.Number) string {
	digits := strings.ReplaceAll(written, "_", "")
	if strings.Trim(digits, "0123456789") != "" {
		return number.String()
	}
	return cmp.Or(strings.TrimLeft(digits, "0"), "0")
}

// integer checks a whole number. YAML reads spellings such as 010 and 1_000 in its own way, so the written text must
// have the same value for people.
func (c *checker) integer(path string, value any, node *yamlv3.Node) {
	number, ok := value.(json.Number)
	if text, isText := value.(string); isText && strings.HasSuffix(path, "Seconds") && strings.Trim(text, "0123456789") != "" {
		c.addAt(Error, path, fmt.Sprintf("must be a whole number of seconds without a unit, not %q", text), node)
		return
	}
	if !ok {
		c.wrong(path, "must be a whole number", value, node)
		return
	}
	n, err := number.Int64()
	written := scalarText(node)
	switch isMode := strings.HasSuffix(path, ".mode"); {
	case err != nil || n != int64(int32(n)):
		message := "must be a whole number within 32 bits, not " + written
		if written != number.String() {
			message = fmt.Sprintf("must be a whole number within 32 bits: YAML makes %s of %s", number, written)
		}
		c.addAt(Error, path, message, node)
	case isMode && noOctal.MatchString(written):
		c.addAt(Error, path, written+" is no octal number, whose digits are 0 to 7: YAML makes "+number.String()+" of it", node)
	case written == "", written == number.String(), isMode: // rules read a mode
	default:
		c.addAt(Error, path, fmt.Sprintf("%s means %s in YAML: write %s", written, number, decimal(written, number)), node)
	}
}

// noOctal has the zero of an octal number, and a digit that is none.
var noOctal = regexp.MustCompile(`^0[0-9]*[89]`)

// environment compares the author's spelling with the value that the program gets.
func (c *checker) environment(path string, value any, node *yamlv3.Node) {
	node = yamlnode.Target(node)
	var got string
	switch value := value.(type) {
	case string:
		return // as it is written
	case json.Number:
		got = stored(value)
	case bool:
		got = fmt.Sprint(value)
	case nil:
		if written := scalarText(node); written != "" {
			c.addAt(Error, path, fmt.Sprintf("%s without quotes is no value in YAML, and the program gets an empty one: write \"\" for it, or \"%s\" for the text", written, written), node)
		}
		return
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
	c.addAt(severity, path, fmt.Sprintf("%s without quotes is %s in YAML, and the program gets %s: write \"%s\"", node.Value, jsonTypeName(value), got, node.Value), node)
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
func (c *checker) converted(path, name string, node *yamlv3.Node) {
	if node = yamlnode.Target(node); node == nil || node.Kind != yamlv3.MappingNode {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i]; key.Value != name && keyName(key) == name {
			c.addAt(Error, path, fmt.Sprintf("%s without quotes becomes the name %s in YAML: write \"%s\"", key.Value, name, key.Value), key)
		}
	}
}

// keyName returns the name that YAML makes of a key.
func keyName(key *yamlv3.Node) string {
	var as map[string]any
	if key.Kind != yamlv3.ScalarNode || key.Style != 0 || key.Value == "<<" || yaml.Unmarshal([]byte(key.Value+":"), &as) != nil {
		return key.Value
	}
	for name := range as {
		return name
	}
	return key.Value
}

// wrong adds a value of the wrong type in the spelling of the author.
func (c *checker) wrong(path, want string, value any, node *yamlv3.Node) {
	written := scalarText(node)
	switch value.(type) {
	case map[string]any, []any:
		c.addAt(Error, path, fmt.Sprintf("%s, not %s", want, jsonTypeName(value)), node)
		return
	}
	message := fmt.Sprintf("%s: %s is %s in YAML", want, cmp.Or(written, `""`), jsonTypeName(value))
	var plain any
	_ = yaml.Unmarshal([]byte(written), &plain) // a text that cannot be parsed stays a text
	_, isNumber := plain.(float64)
	_, isBool := plain.(bool)
	switch {
	case want == "must be a string":
		message += fmt.Sprintf(". Write \"%s\"", written)
	case yamlnode.Target(node).Style&(yamlv3.DoubleQuotedStyle|yamlv3.SingleQuotedStyle) == 0:
	case isNumber && strings.Contains(want, "number"), isBool && strings.Contains(want, "true or false"):
		message += ". Remove the quotes"
	}
	c.addAt(Error, path, message, node)
}

// jsonTypeName is for messages. A time and an amount are strings there.
func jsonTypeName(value any) string {
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

// jsonFields returns the types of a struct's fields by their name in JSON.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case strings.Contains(options, "inline"), name == "" && f.Anonymous:
			maps.Copy(all, jsonFields(f.Type))
		case name != "":
			all[name] = f.Type
		}
	}
	return all
}

// join appends the name of a field to its parent's, which is empty at the top.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// orNode returns a position in every case: a value that an alias or a merge brought in has none of its own.
func orNode(node, other *yamlv3.Node) *yamlv3.Node {
	if node == nil {
		return other
	}
	return node
}
