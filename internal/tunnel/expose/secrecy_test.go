package expose

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Admission may repeat the object that it refuses: the keys of a tunnel must not be printed with it.
func TestARefusedSecretIsNotQuoted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":%q}`, "not this: "+string(body))
	}))
	t.Cleanup(server.Close)
	c, err := newCluster(&rest.Config{Host: server.URL}, "berg")
	if err != nil {
		t.Fatal(err)
	}
	name := metav1.ObjectMeta{Name: "tunnel"}
	err = c.explain(c.create(t.Context(), &corev1.Secret{ObjectMeta: name, StringData: map[string]string{"tls.key": "the-private-key"}}))
	if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "the-private-key") {
		t.Error(err)
	}
	err = c.explain(c.create(t.Context(), &corev1.Pod{ObjectMeta: name, Spec: corev1.PodSpec{NodeName: "one"}}))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not this") {
		t.Errorf("the refusal of a pod does not say why: %v", err)
	}
}
