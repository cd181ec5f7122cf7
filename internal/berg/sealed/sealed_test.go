package sealed

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func container(t *testing.T, text string) (c bergv1.Container) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

const secretive = `{hostname: web, image: i, environment: {B: hunter2, A: 1}, command: [run, --password=hunter2], args: [hunter2], ` +
	`ports: [{port: 80}], readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: Authorization, value: hunter2}]}}, livenessProbe: {exec: {command: [hunter2]}}}`

func TestWhatIsPublicHasNoSecret(t *testing.T) {
	c := container(t, secretive)
	data, err := json.Marshal(Public(c))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"hostname":"web","image":"i","ports":[{"port":80}],"environment":["A","B"]}`; string(data) != want {
		t.Errorf("%s", data)
	}
	if len(c.Environment) != 2 || c.ReadinessProbe == nil {
		t.Error("the container itself was changed")
	}
}

// A version that does not know the form must not take an instance for one without variables: it would restart its pods.
func TestEarlierVersionsRefuseTheForm(t *testing.T) {
	for _, text := range []string{secretive, `{hostname: web, image: i, command: [a]}`} {
		data, err := json.Marshal(Public(container(t, text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &bergv1.Container{}); err == nil {
			t.Errorf("it is read as an earlier form: %s", data)
		}
	}
}

func TestFormsAreReadAsTheyWereWritten(t *testing.T) {
	for name, text := range map[string]string{
		"everything": secretive, "nothing private": `{hostname: web, image: i}`, "a number and null": `{hostname: web, image: i, environment: {A: 1e3, B: null}}`,
	} {
		c := container(t, text)
		for form, in := range map[string]Container{"plain": Plain(c), "public": Public(c)} {
			data, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			var out Container
			if err := json.Unmarshal(data, &out); err != nil || out.Environment.Sealed() != (form == "public") {
				t.Fatalf("%s, %s: sealed %v, error %v", name, form, out.Environment.Sealed(), err)
			}
			opened := out.Open()
			if form == "public" {
				PrivateOf(c).Put(&opened)
			}
			if got, want := asJSON(t, opened), asJSON(t, c); got != want {
				t.Errorf("%s, %s:\n%s\n%s", name, form, got, want)
			}
		}
	}
	var v Variables
	if err := json.Unmarshal([]byte(` [1]`), &v); err == nil {
		t.Error("a number is the name of a variable")
	}
}

func TestChangesRepeatNoValue(t *testing.T) {
	before := PrivateOf(container(t, secretive))
	for after, want := range map[string]string{
		secretive: "[]",
		strings.ReplaceAll(secretive, "hunter2", "hunter3"):      "[environment B readinessProbe livenessProbe command args]",
		strings.ReplaceAll(secretive, "A: 1}", "C: 1}"):          "[environment A environment C]",
		strings.ReplaceAll(secretive, "A: 1}", `A: "1"}`):        "[]",
		`{hostname: web, image: j}`:                              "[environment A environment B readinessProbe livenessProbe command args]",
		strings.ReplaceAll(secretive, "args: [hunter2]", "args"): "[args]",
	} {
		if got := fmt.Sprint(Changes(before, PrivateOf(container(t, after)))); got != want {
			t.Errorf("%s: %s", after, got)
		}
	}
}

func TestWhatIsNotedIsRead(t *testing.T) {
	var many []string
	for n := range 20 {
		many = append(many, fmt.Sprint("environment V", n))
	}
	for name, tc := range map[string]struct {
		changes []Changed
		want    map[string][]string
	}{
		"nothing":         {nil, nil},
		"no change":       {[]Changed{{"web", nil}}, nil},
		"one":             {[]Changed{{"web", []string{"environment COLOUR"}}}, map[string][]string{"web": {"environment COLOUR"}}},
		"two":             {[]Changed{{"web", []string{"environment A", "command"}}, {"db", nil}, {"bot-2", []string{"args"}}}, map[string][]string{"web": {"environment A", "command"}, "bot-2": {"args"}}},
		"many":            {[]Changed{{"web", append(many, "args")}}, map[string][]string{"web": append(many[:5:5], "args", "15 more variables")}},
		"an unusual name": {[]Changed{{"web", []string{"environment a), db (b"}}, {"db", []string{"args"}}}, map[string][]string{"web": {"1 more variable"}, "db": {"args"}}},
		"a long name":     {[]Changed{{"web", []string{"environment " + strings.Repeat("A", 100)}}}, map[string][]string{"web": {"1 more variable"}}},
	} {
		message := "The Challenge was changed (twice), web (command)" + Note(tc.changes)
		if got := Noted(message); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %v of %s", name, got, message)
		}
	}
	worst := make([]Changed, 0, 16)
	for n := range 16 {
		worst = append(worst, Changed{strings.Repeat(string(rune('a'+n)), 53), append(many, "readinessProbe", "livenessProbe", "command", "args")})
	}
	if note := Note(worst); len(note) > maxNote || len(Noted(note)) != len(worst) {
		t.Errorf("%d bytes of %d containers: %s", len(note), len(Noted(note)), note)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
