package settingsmap

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An API server that starts answers with errors for a while. The program then waits, and neither ends nor starts without settings.
func TestReadWaitsForAnAPIServerThatStarts(t *testing.T) {
	settings := schema.GroupResource{Resource: "configmaps"}
	for name, tc := range map[string]struct {
		first *apierrors.StatusError
		calls int
	}{
		"not ready yet": {apierrors.NewServiceUnavailable("apiserver not ready"), 2},
		"overloaded":    {apierrors.NewInternalError(os.ErrDeadlineExceeded), 2},
		"missing":       {apierrors.NewNotFound(settings, "a"), 1},
		"no right":      {apierrors.NewForbidden(settings, "a", os.ErrPermission), 1},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				calls++
				w.Header().Set("Content-Type", "application/json")
				var answer any = &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{"A": "b"}}
				if calls == 1 {
					tc.first.ErrStatus.APIVersion, tc.first.ErrStatus.Kind = "v1", "Status"
					w.WriteHeader(int(tc.first.ErrStatus.Code))
					answer = tc.first.ErrStatus
				}
				_ = json.NewEncoder(w).Encode(answer)
			}))
			defer server.Close()
			kubeconfig := filepath.Join(t.TempDir(), "config")
			content := "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n" +
				"users: [{name: a, user: {}}]\nclusters: [{name: a, cluster: {server: '" + server.URL + "'}}]\n"
			if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("KUBECONFIG", kubeconfig)
			got, err := New("program", logr.Discard()).Read(t.Context(), "berg")
			if err != nil || calls != tc.calls || (got["A"] == "b") != (tc.calls == 2) {
				t.Errorf("%d calls: %v, %v", calls, got, err)
			}
		})
	}
}
