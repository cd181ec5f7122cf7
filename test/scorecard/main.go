package main

import (
	"encoding/json"
	"fmt"
	"os"
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

func main() {
	dir := bundleDir
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	// The whole output of the pod, standard error too, must be one JSON text.
	output, err := json.MarshalIndent(judge(dir), "", "  ")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = fmt.Fprintln(os.Stdout, string(output))
}

func judge(dir string) status {
	b, err := load(dir)
	if err != nil {
		return status{Results: []result{{Name: "readable", State: "error", Errors: []string{err.Error()}}}}
	}
	var s status
	for _, c := range checks {
		r := result{Name: c.name, State: "pass"}
		if problems := c.problems(b); len(problems) > 0 {
			r.State, r.Errors = "fail", problems
		}
		s.Results = append(s.Results, r)
	}
	return s
}
