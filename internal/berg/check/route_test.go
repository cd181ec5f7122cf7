package check

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

func TestRouteProblem(t *testing.T) {
	i := &bergv1.ChallengeInstance{Status: bergv1.ChallengeInstanceStatus{
		Namespace: "challenge-a", Services: []bergv1.ServiceEndpoint{{Name: "web", Hostname: "a.example.com", Port: 443}},
	}}
	parent := func(conditionType string, status metav1.ConditionStatus, reason, message string) []gatewayv1.RouteParentStatus {
		return []gatewayv1.RouteParentStatus{{Conditions: []metav1.Condition{{Type: conditionType, Status: status, Reason: reason, Message: message}}}}
	}
	hosts := []gatewayv1.Hostname{"A.example.com"}
	for name, tc := range map[string]struct {
		of   route
		want []string
	}{
		"accepted": {route{"HTTPRoute", "challenge-a", "web", hosts, parent("Accepted", metav1.ConditionTrue, "Accepted", "")}, nil},
		"the listener is gone": {
			route{"HTTPRoute", "challenge-a", "web", hosts, parent("Accepted", metav1.ConditionFalse, "NoMatchingParent", "no listener http")},
			[]string{"HTTPRoute challenge-a/web: Accepted is False: NoMatchingParent: no listener http"},
		},
		"the Service is gone": {
			route{"TLSRoute", "challenge-a", "web", hosts, parent("ResolvedRefs", metav1.ConditionFalse, "BackendNotFound", "")},
			[]string{"TLSRoute challenge-a/web: ResolvedRefs is False: BackendNotFound"},
		},
		"no controller": {
			route{"HTTPRoute", "challenge-a", "web", hosts, nil},
			[]string{"HTTPRoute challenge-a/web: no controller of a Gateway has processed it"},
		},
		"it is stolen": {
			route{"HTTPRoute", "elsewhere", "thief", hosts, nil},
			[]string{"HTTPRoute elsewhere/thief claims the host A.example.com too"},
		},
		"of another Gateway": {route{"HTTPRoute", "elsewhere", "other", []gatewayv1.Hostname{"b.example.com", "*.example.com"}, nil}, nil},
	} {
		if got := routeProblem(tc.of, i); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestAnUnreachedInstanceHasItsRoutesChecked(t *testing.T) {
	routes := []string{"HTTPRoute challenge-a/web: Accepted is False: NoMatchingParent", "HTTPRoute elsewhere/thief claims the host a.example.com too"}
	for name, tc := range map[string]struct {
		ended func(*Observed)
		want  bergv1.CheckResultType
		tells bool
	}{
		"unreachable": {podEnded(cannotReach, "Error", "refused"), bergv1.CheckUnreachable, true},
		"wrong flag":  {podEnded(0, "Completed", "flag{of another player}"), bergv1.CheckWrongFlag, true},
		"solved":      {podEnded(0, "Completed", flagOfTests), bergv1.CheckSolved, false},
		"it crashed":  {podEnded(1, "Error", "bug"), bergv1.CheckSolverCrashed, true},
		"too slow":    {with(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: atNoon(0)}}), bergv1.CheckTooSlow, true},
		"no solver":   {podEnded(128, "StartError", "no such file"), bergv1.CheckSolverNotStarted, false},
	} {
		v := assess(observedWith(tc.ended), noon.Add(time.Hour))
		if v.unreached() != tc.tells {
			t.Errorf("%s: the routes are read: %t", name, !tc.tells)
		}
		if v.unreached() {
			v.add(routes)
		}
		got := v.Result
		if got.Result != tc.want || strings.HasSuffix(got.Message, "; "+strings.Join(routes, "; ")) != tc.tells {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAResultDoesNotWaitForRoutes(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	scheme := runtime.NewScheme()
	if err := gatewayv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	served := apimeta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"HTTPRoute", "TLSRoute"} {
		served.Add(schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: kind}, apimeta.RESTScopeNamespace)
	}
	for name, tc := range map[string]struct {
		kinds apimeta.RESTMapper
		tells int
	}{
		"no Gateway API":             {apimeta.NewDefaultRESTMapper(nil), 0},
		"an API server that is away": {served, 1},
	} {
		live, err := client.New(&rest.Config{Host: closed.URL}, client.Options{Scheme: scheme, Mapper: tc.kinds})
		if err != nil {
			t.Fatal(err)
		}
		got := (&Reconciler{Live: live}).routeProblems(t.Context(), &bergv1.ChallengeInstance{})
		if len(got) != tc.tells || tc.tells > 0 && !strings.HasPrefix(got[0], "not all routes could be read: ") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
