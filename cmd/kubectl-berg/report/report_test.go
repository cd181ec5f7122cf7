package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/overview"
	"github.com/bergctf/berg-operator/internal/berg/redact"
)

var update = flag.Bool("update", false, "write the golden file")

var noon = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

// fill sets every string of a value, at any depth, to one that names its field.
func fill(v reflect.Value, path string) {
	switch v.Interface().(type) {
	case metav1.Time, metav1.MicroTime, resource.Quantity, intstr.IntOrString, metav1.FieldsV1:
		return
	case bergv1.EnvironmentValue:
		v.Set(reflect.ValueOf(bergv1.StringValue("canary:" + path)))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("canary:" + path)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				fill(v.Field(i), path+"."+field.Name)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("canary:" + path))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, path+".key")
		fill(value, path)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default: // numbers and booleans are no secret
	}
}

// filled returns an object whose strings name their fields.
func filled[T any](name string) *T {
	object := new(T)
	fill(reflect.ValueOf(object).Elem(), name)
	return object
}

// everything is the survey of objects in which every field is set.
func everything() (doctor.Survey, []corev1.Event) {
	s := doctor.Survey{Now: noon, Plugin: "v0.1.0", Server: "v1.37.1", Unreadable: map[string]string{}, Leader: "pod", Renewed: noon}
	s.Deployment = filled[appsv1.Deployment]("Deployment")
	s.Deployment.Spec.Template.Spec.Containers[0].Env[0].ValueFrom = nil
	s.Sources = map[string]string{"OTHER": "canary:Sources"}
	s.Pods = []corev1.Pod{*filled[corev1.Pod]("OperatorPod")}
	s.InstancePods = []corev1.Pod{*filled[corev1.Pod]("Pod")}
	for i := range s.InstancePods[0].Status.ContainerStatuses { // of the states one is set
		c := &s.InstancePods[0].Status.ContainerStatuses[i]
		c.State.Waiting, c.State.Running = nil, nil
	}
	s.Nodes = []corev1.Node{*filled[corev1.Node]("Node")}
	s.Challenges = []bergv1.Challenge{*filled[bergv1.Challenge]("Challenge")}
	i := filled[bergv1.ChallengeInstance]("Instance")
	i.Status.Namespace = s.InstancePods[0].Namespace
	s.Instances = []bergv1.ChallengeInstance{*i}
	s.Checks = []bergv1.ChallengeCheck{*filled[bergv1.ChallengeCheck]("Check")}
	e := filled[corev1.Event]("Event")
	e.Namespace = i.Namespace
	return s, []corev1.Event{*e}
}

func contents(t *testing.T, files []File) string {
	t.Helper()
	var archive bytes.Buffer
	if err := Write(&archive, "berg-report", noon, files); err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(&archive)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(header.Name, ".json") && !json.Valid(text) {
			t.Errorf("%s is no JSON: %s", header.Name, text)
		}
		if !strings.HasPrefix(header.Name, "berg-report/") || header.Mode != 0o600 {
			t.Errorf("%s, mode %o", header.Name, header.Mode)
		}
		fmt.Fprintf(&all, "== %s\n%s\n", header.Name, text)
	}
}

// The golden file lists every field of every object that gets into a report, without the redaction. A field that appears there must
// not be able to hold a flag or a secret.
func TestFieldsOfAReport(t *testing.T) {
	s, events := everything()
	bundle := New(s, overview.New(s, nil, "records"), events)
	files, err := bundle.Files(NewRedactor(nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`canary:([A-Za-z0-9.]+)`).FindAllStringSubmatch(contents(t, files), -1) {
		found[strings.TrimRight(m[1], ".")] = true
	}
	var fields []string
	for field := range found {
		fields = append(fields, field)
	}
	slices.Sort(fields)
	got := strings.Join(fields, "\n") + "\n"
	if *update {
		if err := os.WriteFile("testdata/fields.txt", []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the fields are\n%swant\n%s", got, want)
	}
	for _, never := range []string{"Flag", "Env", "Command", "Args", "Environment", "Description", "Data", "Terminated.Message", "Output", "Value", "Services", "Seed", "Snapshot", "Volumes", "Annotations", "Labels"} {
		for _, field := range fields {
			if strings.HasSuffix(field, "."+never) || strings.Contains(field, "."+never+".") {
				if field != "Deployment.Spec.Template.Spec.Containers.Env.Name" {
					t.Errorf("a report holds %s", field)
				}
			}
		}
	}
}

// Flags and secrets that other programs quote, as any language writes them, are removed from every text of a report.
func TestNoQuotedFlagIsInAReport(t *testing.T) {
	var flags, texts []string
	for _, language := range []string{"python", "javascript", "perl"} {
		data, err := os.ReadFile("../../../internal/berg/redact/testdata/" + language + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var all []struct {
			Flag  string
			Texts map[string]string
		}
		if err := json.Unmarshal(data, &all); err != nil {
			t.Fatal(err)
		}
		for _, of := range all {
			if !slices.Contains(flags, of.Flag) {
				flags = append(flags, of.Flag)
			}
			for _, text := range of.Texts {
				texts = append(texts, text)
			}
		}
	}
	flags = append(flags, "db-pass-of-an-author", "berg{of_a_challenge}")
	texts = append(texts, "db-pass-of-an-author", "berg{of_a_challenge}", "flag{not_known_to_anyone}", "BERG{neither_this", "Authorization: Bearer abcdefgh.ijkl", "password=hunter2hunter2",
		"https://user:hunter2@proxy.example.com/", "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----", "eyJhbGciOi.eyJzdWIiOi.hunter2")
	if len(flags) < 6 || len(texts) < 100 {
		t.Fatalf("%d flags, %d texts", len(flags), len(texts))
	}
	var instances []bergv1.ChallengeInstance
	for n, f := range flags[:len(flags)-2] {
		i := bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: fmt.Sprint("i", n)}, Spec: bergv1.ChallengeInstanceSpec{Flag: f}}
		instances = append(instances, i)
	}
	challenge := bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "c"}, Spec: bergv1.ChallengeSpec{
		Flag: "berg{of_a_challenge}", Containers: []bergv1.Container{{Environment: map[string]bergv1.EnvironmentValue{"DB_PASSWORD": bergv1.StringValue("db-pass-of-an-author")}}},
	}}
	s := doctor.Survey{Now: noon, Unreadable: map[string]string{}, Instances: instances, Challenges: []bergv1.Challenge{challenge}}
	s.Deployment = &appsv1.Deployment{}
	s.Deployment.Spec.Template.Spec.Containers = []corev1.Container{{Env: []corev1.EnvVar{
		{Name: "HTTPS_PROXY", Value: "http://user:hunter2@proxy"}, {Name: "KAFKA_SASL_USERNAME", Value: "hunter2"}, {Name: "CHALLENGE_DOMAIN", Value: "play.example.org"},
	}}}
	var events []corev1.Event
	for n, text := range texts {
		events = append(events, corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprint(n)}, ObjectMeta: metav1.ObjectMeta{Namespace: "berg"}, Message: "denied: " + text, Reason: text, ReportingController: text})
		i := &s.Instances[n%len(instances)]
		i.Status.Conditions = append(i.Status.Conditions, metav1.Condition{Type: "Ready", Reason: "x", Message: "refused: " + text + " by a webhook"})
	}
	quoted, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	bundle := New(s, overview.New(s, nil, "records"), events)
	bundle.Logs = []Log{{Pod: "operator", Container: "manager", Text: strings.Join(texts, "\n") + "\n" + string(quoted)}}
	bundle.Missing = append(bundle.Missing, texts...)
	files, err := bundle.Files(NewRedactor(s.Challenges, s.Instances))
	if err != nil {
		t.Fatal(err)
	}
	all := contents(t, files)
	for _, f := range flags {
		if cleaned := redact.Text(all, f); cleaned != all {
			at := 0
			for at < len(cleaned) && cleaned[at] == all[at] {
				at++
			}
			t.Errorf("%q is in the report: %q", f, all[max(0, at-40):min(len(all), at+80)])
		}
	}
	for _, secret := range []string{"hunter2", "not_known", "neither_this", "abcdefgh"} {
		if at := strings.Index(all, secret); at >= 0 {
			t.Errorf("%q is in the report: %q", secret, all[max(0, at-40):min(len(all), at+80)])
		}
	}
	if !strings.Contains(all, "play.example.org") || strings.Count(all, redact.Mark) < 3*len(texts) {
		t.Errorf("%d flags are removed", strings.Count(all, redact.Mark))
	}
}

// A report of a large event is bounded, and says what it lacks.
func TestAReportIsBounded(t *testing.T) {
	s := doctor.Survey{Now: noon, Unreadable: map[string]string{}}
	var events []corev1.Event
	long := strings.Repeat("long message ", 80)
	for n := range 6000 {
		i := bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: fmt.Sprint("i", n)}}
		i.Status.Namespace = fmt.Sprint("challenge-", n)
		i.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionPodsReady, Status: metav1.ConditionFalse, Message: long}}
		s.Instances = append(s.Instances, i)
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: i.Status.Namespace, Name: "p"}}
		p.Status.Message = long
		s.InstancePods = append(s.InstancePods, p)
		events = append(events, corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "berg"}, Message: long, LastTimestamp: metav1.NewTime(noon.Add(-time.Duration(n) * time.Second))})
		s.Challenges = append(s.Challenges, bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: fmt.Sprint(n, long)}})
	}
	bundle := New(s, overview.New(s, nil, ""), events)
	for n := range 9 {
		bundle.Logs = append(bundle.Logs, Log{Pod: fmt.Sprint("pod-", n), Container: "manager", Text: strings.Repeat("a line of a log\n", 200_000)})
	}
	files, err := bundle.Files(NewRedactor(s.Challenges, s.Instances))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, f := range files {
		if f.Bytes > max(maxFileBytes, MaxLogBytes) {
			t.Errorf("%s has %d bytes", f.Name, f.Bytes)
		}
		total += f.Bytes
	}
	if total > 17<<20 {
		t.Errorf("%d bytes", total)
	}
	text := contents(t, files)
	for _, lacks := range []string{"5000 of 6000 instances are left out", "4000 of 6000 events are left out", "3 logs are left out", "challenges.json: "} {
		if !strings.Contains(text, lacks) {
			t.Errorf("the report does not say %q", lacks)
		}
	}
}

// A line of which the beginning is missing could hold the end of a flag.
func TestALogBeginsWithAWholeLine(t *testing.T) {
	for text, want := range map[string]string{"one\ntwo\nthree\n": "three\n", "short\n": "short\n", "flag{abcdefghijk}": "", "": ""} {
		if got := Tail(text, 8); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestWhatLooksLikeASecretIsRemoved(t *testing.T) {
	for text, want := range map[string]string{
		"bearer token: abcd1234":               "bearer token: " + SecretPlaceholder,
		`{"password":"abcd1234","user":"x"}`:   `{"password":"` + SecretPlaceholder + `","user":"x"}`,
		`{\"password\":\"abcd1234\"}`:          `{\"password\":\"` + SecretPlaceholder + `\"}`,
		"postgres://berg:abcd@db/berg":         "postgres://" + SecretPlaceholder + "@db/berg",
		"PULL_SECRET_NAME=regcred":             "PULL_SECRET_NAME=regcred",
		"ghcr.io/example/web:1@sha256:0123abc": "ghcr.io/example/web:1@sha256:0123abc",
		"Secret berg/regcred not found":        "Secret berg/regcred not found",
	} {
		if got := Secrets(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
