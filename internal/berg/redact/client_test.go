package redact

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

type warned struct{ text string }

func (w *warned) HandleWarningHeader(_ int, _, text string) { w.text += text }

// An API server repeats the object that it refuses and warns of, for every verb.
func TestAClientDoesNotRepeatFlags(t *testing.T) {
	const flag = "flag{only_for_players}"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Warning", `299 - "do you want `+flag+`?"`)
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not with %s"}`, flag)
	}))
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	if err := bergv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Challenge", "ChallengeInstance"} {
		mapper.Add(bergv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	heard := &warned{}
	plain, err := client.NewWithWatch(&rest.Config{Host: server.URL, WarningHandlerWithContext: Warnings{heard}}, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	c, ctx, name := Client(plain), t.Context(), metav1.ObjectMeta{Namespace: "berg", Name: "one"}
	for _, o := range []client.Object{
		&bergv1.ChallengeInstance{ObjectMeta: name, Spec: bergv1.ChallengeInstanceSpec{Flag: flag}},
		&bergv1.Challenge{ObjectMeta: name, Spec: bergv1.ChallengeSpec{Flag: flag}},
	} {
		for verb, err := range map[string]error{
			"create": c.Create(ctx, o), "update": c.Update(ctx, o), "patch": c.Patch(ctx, o, client.Merge), "delete": c.Delete(ctx, o),
		} {
			if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "players") || !strings.Contains(err.Error(), Mark) {
				t.Errorf("%s %T: %v", verb, o, err)
			}
		}
	}
	if strings.Contains(heard.text, "players") || !strings.Contains(heard.text, Mark) {
		t.Errorf("warnings: %s", heard.text)
	}
}
