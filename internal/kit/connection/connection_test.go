package connection

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// A program that finds the API server by itself logs warnings, which may quote flags.
func TestEveryProgramReachesTheAPIServerByThisConfiguration(t *testing.T) {
	finds := regexp.MustCompile(`\b(ctrl\.GetConfig\(\)|\w+\.ClientConfig\(\)|\w+\.ToRESTConfig\(\)|rest\.InClusterConfig\(\)|BuildConfigFromFlags\()`)
	found := 0
	for _, root := range []string{"../../../cmd", "../../../internal"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil || !finds.Match(source) {
				return err
			}
			found++
			if !strings.Contains(string(source), "connection.Configure(") {
				t.Errorf("%s finds the API server, and does not use connection.Configure", path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 4 {
		t.Errorf("%d programs were found", found)
	}
}

func TestWarningsAreNotLogged(t *testing.T) {
	given := &rest.Config{QPS: 5, WarningHandler: rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{})}
	got := Configure(given)
	if got.WarningHandler != nil || got.WarningHandlerWithContext == nil || got.QPS >= 0 || given.WarningHandler == nil {
		t.Errorf("%+v", got)
	}
}

func TestARefusalDoesNotQuoteTheContent(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "tls", errors.New("not with the key abcdef"))
	got := WithoutMessage(refused)
	if !apierrors.IsForbidden(got) || strings.Contains(got.Error(), "abcdef") || !strings.Contains(got.Error(), "Forbidden") {
		t.Error(got)
	}
	if other := errors.New("no route to host"); !errors.Is(WithoutMessage(other), other) || WithoutMessage(other).Error() != other.Error() {
		t.Error("another error was changed")
	}
}
