package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tested are lines of docs/compatibility.md with the minor version of a module that the tests run.
var tested = []struct{ file, module, line string }{
	{"test/cluster/components/kubernetes/go.mod", "k8s.io/kubernetes", "| %s | tested: etcd, control plane and kubelet of that version"},
	{"test/cluster/components/containerd/go.mod", "github.com/containerd/containerd/v2", "with containerd %s and runc"},
	{"test/cluster/components/runc/go.mod", "github.com/opencontainers/runc", "and runc %s |"},
	{"go.mod", "sigs.k8s.io/gateway-api", "| Gateway API | %s or later,"},
	{"test/cluster/components/cilium/go.mod", "github.com/cilium/cilium", "| Cilium | %s | tested"},
	{"test/cluster/components/traefik/go.mod", "github.com/traefik/traefik/v3", "| Traefik %s | tested"},
	{"test/cluster/components/olm/go.mod", "github.com/operator-framework/operator-lifecycle-manager", "| Operator Lifecycle Manager | %s | tested"},
	{"test/conform/chart/go.mod", "helm.sh/helm/v4", "| Helm | %s | tested"},
}

// What the page calls tested is what the tests run.
func TestCompatibilityNamesTestedVersions(t *testing.T) {
	page := string(read(t, "docs/compatibility.md"))
	for _, p := range tested {
		minor, _ := pinned(t, p.file, p.module)
		if line := fmt.Sprintf(p.line, minor); !strings.Contains(page, line) {
			t.Errorf("docs/compatibility.md lacks %q: %s has version %s of %s", line, p.file, minor, p.module)
		}
	}
	older, err := filepath.Glob(filepath.Join(root, "test/cluster/components/kubernetes-*/go.mod"))
	if err != nil || len(older) == 0 {
		t.Fatal("no older version of Kubernetes", err)
	}
	for _, file := range older {
		file, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		minor, patch := pinned(t, file, "k8s.io/kubernetes")
		if filepath.Dir(file) != "test/cluster/components/kubernetes-"+minor {
			t.Errorf("%s has version %s", file, patch)
		}
		if line := fmt.Sprintf("\n| %s | tested: %s on ", minor, patch); !strings.Contains(page, line) {
			t.Errorf("docs/compatibility.md lacks %q: run make test-version-%s", line, minor)
		}
	}
}

// pinned returns the version of a module in a file, such as 1.33 and 1.33.13.
func pinned(t *testing.T, file, module string) (minor, patch string) {
	t.Helper()
	m := regexp.MustCompile(`\b` + regexp.QuoteMeta(module) + ` v((\d+\.\d+)\.\d+)`).FindStringSubmatch(string(read(t, file)))
	if m == nil {
		t.Fatalf("%s does not have %s", file, module)
	}
	return m[2], m[1]
}
