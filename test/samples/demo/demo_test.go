package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestParseOptions(t *testing.T) {
	t.Setenv("KUBECONFIG", "/some/kubeconfig")
	for name, test := range map[string]struct {
		command string
		args    []string
		want    options
		refused string
	}{
		"defaults":         {"up", nil, options{profile: "auto", name: "demo", keep: true, picture: "dist/demo.png", kubeconfig: "/some/kubeconfig"}, ""},
		"everything":       {"up", []string{"--profile", "node", "--name", "x", "--keep=false", "--yes", "--registry", "r/p", "--picture", "p"}, options{profile: "node", name: "x", yes: true, registry: "r/p", picture: "p", kubeconfig: "/some/kubeconfig"}, ""},
		"a Gateway":        {"up", []string{"--profile", "network"}, options{profile: "network", name: "demo", keep: true, picture: "dist/demo.png", kubeconfig: "/some/kubeconfig"}, ""},
		"down":             {"down", []string{"--yes"}, options{profile: "auto", name: "demo", keep: true, yes: true, picture: "dist/demo.png", kubeconfig: "/some/kubeconfig"}, ""},
		"unknown profile":  {"up", []string{"--profile", "docker"}, options{}, "use auto, node, network or simulated"},
		"option of up":     {"down", []string{"--profile", "node"}, options{}, "not defined: -profile"},
		"further argument": {"up", []string{"now"}, options{}, `unexpected argument "now"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseOptions(test.command, test.args)
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Fatalf("error = %v, want one with %q", err, test.refused)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("options = %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	condition := func(name, status, reason string) metav1.Condition {
		return metav1.Condition{Type: name, Status: metav1.ConditionStatus(status), Reason: reason, Message: "because"}
	}
	before := bergv1.ChallengeInstanceStatus{Phase: "Starting", Conditions: []metav1.Condition{
		condition("NamespaceCreated", "True", "Created"),
		condition("PodsReady", "Unknown", "Starting"),
		condition("Healthy", "Unknown", "Starting"),
	}}
	after := bergv1.ChallengeInstanceStatus{Phase: "Running", Conditions: []metav1.Condition{
		condition("NamespaceCreated", "True", "Created"),
		condition("PodsReady", "True", "Ready"),
		condition("Healthy", "False", "CrashLoopBackOff"),
		condition("UpToDate", "Unknown", "Waiting"),
	}}
	want := []string{
		"  + PodsReady",
		"  - Healthy (CrashLoopBackOff: because)",
		"  ? UpToDate (Waiting: because)",
		"Starting → Running",
	}
	if got := changes(before, after); !reflect.DeepEqual(got, want) {
		t.Errorf("changes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := changes(after, after); got != nil {
		t.Errorf("nothing changed, but: %q", got)
	}
	if got := changes(bergv1.ChallengeInstanceStatus{}, bergv1.ChallengeInstanceStatus{Phase: "Pending"}); !reflect.DeepEqual(got, []string{"(new) → Pending"}) {
		t.Errorf("first phase: %q", got)
	}
}

func TestStepsAreShown(t *testing.T) {
	var out bytes.Buffer
	s := newShow(&out)
	err := s.step(t.Context(), "first", nil, func(context.Context) (outcome, error) {
		s.note("something %d", 1)
		return "done", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.step(t.Context(), "second", []string{"the log"}, func(context.Context) (outcome, error) {
		return "", &hintedError{errors.New("it broke"), []string{"the events"}}
	})
	var failed *stepError
	if !errors.As(err, &failed) {
		t.Fatalf("error = %v, want a stepError", err)
	}
	failed.print(&out)
	want := "    something 1\n" +
		"✓ first: done (0s)\n" +
		"✗ second (0s)\n" +
		"\nThe demo stopped at: second\n  why: it broke\n  look at:\n    the log\n    the events\n"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("shown:\n%s\nwant it to begin with:\n%s", &out, want)
	}
}

func TestInterruptedStepSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := newShow(&bytes.Buffer{}).step(ctx, "wait", nil, func(ctx context.Context) (outcome, error) { return "", ctx.Err() })
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error = %v", err)
	}
}

func TestLineWriter(t *testing.T) {
	var lines []string
	w := &lineWriter{write: func(line string) { lines = append(lines, line) }}
	for _, part := range []string{"one\ntw", "o\r\n", "\n", "three"} {
		fmt.Fprint(w, part)
	}
	if want := []string{"one", "two"}; !reflect.DeepEqual(lines, want) {
		t.Errorf("lines = %q, want %q", lines, want)
	}
}

// The demo knows the samples by name: this fails when they are renamed.
func TestSamplesAreWhatTheDemoExpects(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	d := newDemo(newShow(&bytes.Buffer{}), options{registry: "registry.test/mine"})
	d.target.root = root
	samples, err := d.loadSamples()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	owners := map[string]string{}
	for _, object := range samples {
		names = append(names, describe(object))
		if object.GetLabels()[demoLabel] != demoValue || object.GetNamespace() != samplesNamespace {
			t.Errorf("%s has labels %v and namespace %s", describe(object), object.GetLabels(), object.GetNamespace())
		}
		if owner, found, _ := unstructured.NestedString(object.Object, "spec", "ownerId"); found {
			if other := owners[owner]; other != "" {
				t.Errorf("%s and %s have one owner: only one of them could run", describe(object), other)
			}
			owners[owner] = describe(object)
		}
	}
	for _, name := range []string{webInstance, pwnInstance, shopInstance} {
		for _, kind := range []string{"challenge/", "challengeinstance/"} {
			if !slices.Contains(names, kind+name) {
				t.Errorf("no %s%s among %v", kind, name, names)
			}
		}
	}
	images := sampleImages(samples)
	if len(images) != 5 {
		t.Errorf("%d images, want 5: %v", len(images), images)
	}
	for _, image := range images {
		if !strings.HasPrefix(image, "registry.test/mine/samples/") {
			t.Errorf("image %s is not taken from --registry", image)
		}
	}
	if image, err := d.operatorImage(); err != nil || !strings.HasPrefix(image, "registry.test/mine/berg-operator:v") {
		t.Errorf("image of the operator = %q, %v", image, err)
	}
}

func TestOnlyTheDemosProcessIsOurs(t *testing.T) {
	if isOurs(os.Getpid(), "demo") {
		t.Error("a process without the mark counts as the demo's")
	}
	if isOurs(1<<30, "demo") {
		t.Error("a process that does not exist counts as the demo's")
	}
}

func TestOperatorProcessIsStopped(t *testing.T) {
	t.Setenv("BERG_CLUSTER_CACHE", t.TempDir())
	state, err := stateDir("demo")
	if err != nil {
		t.Fatal(err)
	}
	if err := stopOperatorProcess(t.Context(), "demo"); err != nil {
		t.Errorf("nothing to stop: %v", err)
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}

	// A stranger got the number of the operator's process: it must live on.
	stranger := startProcess(t)
	writePID(t, state, stranger.Process.Pid)
	if err := stopOperatorProcess(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	if err := stranger.Process.Signal(syscallZero); err != nil {
		t.Errorf("a process that is not the demo's was ended: %v", err)
	}

	ours := startProcess(t, processMark+"=demo")
	writePID(t, state, ours.Process.Pid)
	if running, err := operatorProcessRuns("demo"); err != nil || !running {
		t.Errorf("running = %v, %v", running, err)
	}
	if err := stopOperatorProcess(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	if running, err := operatorProcessRuns("demo"); err != nil || running {
		t.Errorf("running after stop = %v, %v", running, err)
	}
}
