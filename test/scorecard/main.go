package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/scorecard/examples"
)

// bundleDir is where operator-sdk unpacks the bundle in the test's pod.
const bundleDir = "/bundle"

// timeout bounds how long an example may take to run, and to go. The pod of a
// test is given up after the time that operator-sdk is told by --wait-time.
const timeout = 3 * time.Minute

func main() {
	var result v1alpha3.TestStatus
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

func checkBundle(dir string) v1alpha3.TestStatus {
	b, err := load(dir)
	if err != nil {
		return failed("readable", err)
	}
	var s v1alpha3.TestStatus
	for _, c := range checks {
		s.Results = append(s.Results, newResult(c.name, c.problems(b)))
	}
	return s
}

// tryExamples runs the examples on the cluster that the pod is in.
func tryExamples(ctx context.Context, dir string) v1alpha3.TestStatus {
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
	var s v1alpha3.TestStatus
	for _, o := range outcomes {
		s.Results = append(s.Results, newResult("example-"+o.Name+"-"+o.Did, o.Problems))
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
	text, err := examples.ReadDocumentation()
	return examples.Run{Client: k8s, Namespace: namespace, Timeout: timeout, Documentation: text}, err
}

func newResult(name string, problems []string) v1alpha3.TestResult {
	if len(problems) > 0 {
		return v1alpha3.TestResult{Name: name, State: v1alpha3.FailState, Errors: problems}
	}
	return v1alpha3.TestResult{Name: name, State: v1alpha3.PassState}
}

func failed(name string, err error) v1alpha3.TestStatus {
	return v1alpha3.TestStatus{Results: []v1alpha3.TestResult{{Name: name, State: v1alpha3.ErrorState, Errors: []string{err.Error()}}}}
}
