package main

import (
	"context"
	"io"
	"os"
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
