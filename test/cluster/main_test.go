package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/test/cluster/kube"
)

// TestMain lets the test binary stand in for the runner: tests start it as one, and so does the runner itself
// for what happens in other namespaces.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string
	}{
		{"", "no command given"},
		{"fly", `unknown command "fly"`},
		{"up --name Upper", "--name"},
		{"up --name " + strings.Repeat("a", 21), "--name"},
		{"up --profile virtual", `"virtual"`},
		{"up --nodes 0", "--nodes 0"},
		{"up now", `no argument "now"`},
		{"up --speed 3", "-speed"},
		{"down --profile node", "-profile"},
		{"load", "at least one image archive"},
		{"logs a b", "one component"},
		{"restart", "one component"},
	} {
		err := run(context.Background(), strings.Fields(tc.args), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("cluster %s: got error %v, want one that says %s", tc.args, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("cluster %s: the error has more than one line: %v", tc.args, err)
		}
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	var out strings.Builder
	if err := run(context.Background(), []string{"help"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"up", "down", "status", "list", "kubeconfig", "kubectl", "registry", "load", "restart", "logs", "build", "bin"} {
		if !strings.Contains(out.String(), "\n  "+command+" ") {
			t.Errorf("help does not tell of %s", command)
		}
	}
	for _, profile := range kube.Profiles() {
		if !strings.Contains(out.String(), "--profile "+profile+" ") {
			t.Errorf("help does not tell of profile %s", profile)
		}
	}
}

func TestSplitName(t *testing.T) {
	for _, tc := range []struct{ args, own, others string }{
		{"", "", ""},
		{"get pods", "", "get pods"},
		{"--name x get pods", "--name x", "get pods"},
		{"-name x get", "-name x", "get"},
		{"--name=x get --name y", "--name=x", "get --name y"},
		{"get --name x", "", "get --name x"},
		{"name x", "", "name x"},
		{"--name", "--name", ""},
	} {
		own, others := splitName(strings.Fields(tc.args))
		if !slices.Equal(own, strings.Fields(tc.own)) || !slices.Equal(others, strings.Fields(tc.others)) {
			t.Errorf("splitName(%q) = %q, %q", tc.args, own, others)
		}
	}
}
