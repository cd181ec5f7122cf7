package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/docs"
	"github.com/bergctf/berg-operator/test/scorecard/examples"
)

// bundleDir is where operator-sdk unpacks the bundle in the test's pod.
const bundleDir = "/bundle"

// result and status are TestResult and TestStatus of the group
// scorecard.operatorframework.io/v1alpha3.
type result struct {
	Name   string   `json:"name"`
	State  string   `json:"state"`
	Errors []string `json:"errors,omitempty"`
}

type status struct {
	Results []result `json:"results"`
}

// timeout bounds how long an example may take to run, and to go. The pod of a
// test is given up after the time that operator-sdk is told by --wait-time.
const timeout = 3 * time.Minute

func main() {
	var result status
	switch {
	case len(os.Args) == 1:
		result = checkBundle(bundleDir)
	case len(os.Args) == 2 && os.Args[1] == "examples":
		result = tryExamples(context.Background(), bundleDir)
	default:
		fmt.Fprintf(os.Stderr, "usage: %s [examples]\n", os.Args[0])
		os.Exit(2)
	}
	// The whole output of the pod, standard error too, must be one JSON text.
	output, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = fmt.Fprintln(os.Stdout, string(output))
}

func checkBundle(dir string) status {
	b, err := load(dir)
	if err != nil {
		return failed("readable", err)
	}
	var s status
	for _, c := range checks {
		s.Results = append(s.Results, resultOf(c.name, c.problems(b)))
	}
	return s
}

// tryExamples runs the examples on the cluster that the pod is in.
func tryExamples(ctx context.Context, dir string) status {
	// What libraries log would spoil the output.
	ctrl.SetLogger(logr.Discard())
	b, err := load(dir)
	if err != nil {
		return failed("readable", err)
	}
	run, err := newRun()
	if err != nil {
		return failed("cluster", err)
	}
	outcomes, err := run.Try(ctx, b.examples)
	if err != nil {
		return failed("examples", err)
	}
	var s status
	for _, o := range outcomes {
		s.Results = append(s.Results, resultOf("example-"+o.Name+"-"+o.Did, o.Problems))
	}
	return s
}

func newRun() (examples.Run, error) {
	namespace := os.Getenv("SCORECARD_NAMESPACE")
	if namespace == "" {
		return examples.Run{}, errors.New("SCORECARD_NAMESPACE is not set: run this by operator-sdk scorecard")
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return examples.Run{}, err
	}
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := examples.AddToScheme(scheme); err != nil {
		return examples.Run{}, err
	}
	k8s, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return examples.Run{}, err
	}
	text, err := documentation()
	return examples.Run{Client: k8s, Namespace: namespace, Timeout: timeout, Documentation: text}, err
}

// documentation is the text of the pages that explain what is: neither why it is so, nor
// what to do at an alert.
func documentation() (string, error) {
	var b strings.Builder
	err := fs.WalkDir(docs.Pages, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "adr" || path == "runbooks"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		text, err := docs.Pages.ReadFile(path)
		b.Write(text)
		return err
	})
	return b.String(), err
}

func resultOf(name string, problems []string) result {
	if len(problems) > 0 {
		return result{Name: name, State: "fail", Errors: problems}
	}
	return result{Name: name, State: "pass"}
}

func failed(name string, err error) status {
	return status{Results: []result{{Name: name, State: "error", Errors: []string{err.Error()}}}}
}
