package manifests

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

const (
	secretValue = "hunter2"
	secretive   = `
containers:
- {hostname: web, image: i, environment: {ADMIN_PASSWORD: hunter2, PORT: 80}, ports: [{port: 80, type: publicHttpRoute}],
   readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: Authorization, value: hunter2}]}}}
- {hostname: db, image: i, command: [db, --password, hunter2], args: [hunter2], livenessProbe: {exec: {command: [check, hunter2]}}}
- {hostname: cache, image: i}
`
)

func challengeFrom(t testing.TB, text string) *bergv1.Challenge {
	t.Helper()
	c := &bergv1.Challenge{}
	if err := yaml.Unmarshal([]byte(text), &c.Spec); err != nil {
		t.Fatal(err)
	}
	return c
}

// An instance must be built from a stored snapshot as from the one that was stored.
func TestASnapshotSurvivesBeingStored(t *testing.T) {
	cfg := testConfig(t, map[string]string{"CHALLENGE_CPU_LIMIT": "1500m", "CHALLENGE_USER_NAMESPACES": "true"})
	c := challengeFrom(t, secretive)
	c.Spec.Flag = "flag{static}"
	before := NewSnapshot(c, cfg.Challenge)
	encoded, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	var after Snapshot
	if err := json.Unmarshal(encoded, &after); err != nil {
		t.Fatal(err)
	}
	if asJSON(t, after) != asJSON(t, before) || !after.Matches(c) || after.Flag != "flag{static}" {
		t.Errorf("stored as %s, read as %s", encoded, asJSON(t, after))
	}
	pods := func(s Snapshot) string {
		in := testInputs(cfg, s)
		in.Config.Defaults = s.Defaults
		return asJSON(t, PlanWorkloads(in, nil))
	}
	if pods(after) != pods(before) {
		t.Errorf("the pods would restart:\n%s\n%s", pods(before), pods(after))
	}
}

// Every setting of config.Defaults is stored: one that JSON leaves out would be another one after a restart of the operator.
func TestEveryDefaultIsStored(t *testing.T) {
	var before, after config.Defaults
	fillValue(t, reflect.ValueOf(&before).Elem(), "auto")
	encoded, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &after); err != nil {
		t.Fatal(err)
	}
	if asJSON(t, before) != asJSON(t, after) {
		t.Errorf("%+v became %+v", before, after)
	}
	if fields := reflect.TypeFor[config.Defaults]().NumField(); strings.Count(string(encoded), ":") < fields {
		t.Errorf("%d settings, stored as %s", fields, encoded)
	}
}

// A status is readable to accounts that may not read the Challenge. This fills every field of a container, also one that a
// later version adds, and changes each: no value may be in what a status says of it, except those that are public.
func TestPendingChangesRepeatNoValue(t *testing.T) {
	const canary = "hunter2"
	public := []string{"Hostname", "Image"}
	kind := reflect.TypeFor[bergv1.Container]()
	for n := range kind.NumField() {
		field := kind.Field(n)
		before, after := bergv1.Container{Hostname: "web", Image: "i"}, bergv1.Container{Hostname: "web", Image: "i"}
		fillValue(t, reflect.ValueOf(&after).Elem().Field(n), canary)
		challenge := &bergv1.Challenge{Spec: bergv1.ChallengeSpec{Containers: []bergv1.Container{after}}}
		for way, changes := range map[string]*bergv1.PendingChanges{
			"set":     Snapshot{Containers: []bergv1.Container{before}}.Changes(challenge),
			"removed": Normalize(challenge).Changes(&bergv1.Challenge{Spec: bergv1.ChallengeSpec{Containers: []bergv1.Container{before}}}),
		} {
			text := asJSON(t, changes)
			if changes == nil && field.Name != "ImagePullPolicy" {
				t.Errorf("%s, %s: a rollout changes nothing", field.Name, way)
			}
			isPublic := false
			for _, name := range public {
				isPublic = isPublic || name == field.Name
			}
			// The names of variables and of ports are public, and the type of a port is one of four.
			text = strings.NewReplacer("environment "+canary, "", "-"+canary+" (", "", "+"+canary+" (", "", ", "+canary+")", "").Replace(text)
			if !isPublic && strings.Contains(text, canary) {
				t.Errorf("%s, %s: %s", field.Name, way, text)
			}
		}
	}
}

// fillValue sets a value of any type, and all that it consists of.
func fillValue(t *testing.T, v reflect.Value, text string) {
	t.Helper()
	if decoder, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		for _, encoded := range []string{`"` + text + `"`, "12"} {
			if decoder.UnmarshalJSON([]byte(encoded)) == nil {
				return
			}
		}
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(12)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(t, v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillValue(t, v.Index(0), text)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillValue(t, key, text)
		fillValue(t, value, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for n := range v.NumField() {
			if v.Type().Field(n).IsExported() {
				fillValue(t, v.Field(n), text)
			}
		}
	default:
		t.Fatalf("a field of kind %s: say how to fill it", v.Kind())
	}
}

func TestChangesOfARollout(t *testing.T) {
	const before = `
containers:
- {hostname: web, image: "web:1", environment: {COLOUR: red, N: 1}, ports: [{name: web, port: 80, type: publicHttpRoute}], resourceRequests: {cpu: 0.5}}
- {hostname: db, image: "db:1", ports: [{port: 5432}], additionalCapabilities: [CAP_CHOWN]}
`
	for name, tc := range map[string]struct{ from, to, want string }{
		"nothing":               {"", "", "null"},
		"other notations":       {"COLOUR: red, N: 1}", `COLOUR: red, N: "1"}`, "null"},
		"an amount":             {"cpu: 0.5", "cpu: 500m", "null"},
		"a capability":          {"CAP_CHOWN", "CHOWN", "null"},
		"an image":              {"web:1", "web:2", `{"containers":[{"name":"web","effect":"Restarts","fields":["image web:1 → web:2"]}]}`},
		"a variable":            {"red", secretValue, `{"containers":[{"name":"web","effect":"Restarts","fields":["environment COLOUR"]}]}`},
		"a variable more":       {"N: 1}", "N: 1, M: 1}", `{"containers":[{"name":"web","effect":"Restarts","fields":["environment M"]}]}`},
		"a command":             {"CAP_CHOWN]", "CAP_CHOWN], command: [hunter2]", `{"containers":[{"name":"db","effect":"Restarts","fields":["command"]}]}`},
		"a type without a name": {"port: 5432", "port: 5432, type: publicPort", "null"},
		"a name of a port": {"{port: 5432}", "{name: sql, port: 5432}", `{"containers":[{"name":"web","effect":"Restarts","fields":["addresses in *_ENDPOINT: +sql (db:5432/tcp, internalPort)"]},` +
			`{"name":"db","effect":"Restarts","fields":["addresses in *_ENDPOINT: +sql (db:5432/tcp, internalPort)"]}]}`},
		"another container": {"hostname: db", "hostname: bot", `{"containers":[{"name":"bot","effect":"Starts"},{"name":"db","effect":"Ends"}]}`},
		"the policy":        {"\ncontainers", "\nallowOutboundTraffic: true\ncontainers", `{"networkPolicy":true}`},
	} {
		s := Normalize(challengeFrom(t, before))
		if got := strings.ReplaceAll(strings.ReplaceAll(asJSON(t, s.Changes(challengeFrom(t, strings.Replace(before, tc.from, tc.to, 1)))), `\u003e`, ">"), `\u003c`, "<"); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}

func TestManyVariablesAreCounted(t *testing.T) {
	before := bergv1.Container{Hostname: "web", Environment: map[string]bergv1.EnvironmentValue{}}
	for _, name := range strings.Split("A B C D E F G", " ") {
		before.Environment[name] = bergv1.StringValue(name)
	}
	got := changedFields(before, bergv1.Container{Hostname: "web", LivenessProbe: &corev1.Probe{}})
	if want := "environment A,environment B,environment C,environment D,environment E,2 more variables,livenessProbe"; strings.Join(got, ",") != want {
		t.Errorf("%v", got)
	}
}
