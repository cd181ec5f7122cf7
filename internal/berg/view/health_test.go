package view

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// looked is an event at which everything was looked at, and nothing is wrong.
func looked() Facts {
	now := time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)
	gateway := &gatewayv1.Gateway{}
	gateway.Spec.Listeners = []gatewayv1.Listener{{Name: "http"}}
	gateway.Status.Conditions = []metav1.Condition{{Type: "Programmed", Status: metav1.ConditionTrue}}
	return Facts{
		Now: now, Isolation: &corev1.PodCondition{Status: corev1.ConditionTrue, LastProbeTime: metav1.NewTime(now)}, IsolationCheck: "interval",
		Gateway: &Gateway{Namespace: "berg", Name: "gate", Object: gateway, Class: &gatewayv1.GatewayClass{}}, Listeners: []string{"http"},
		NodePorts: &Amount{Used: 10, Total: 2768}, ProcessLimits: map[string]int64{"a": 1024},
		Certificates: []Certificate{{Listener: "http", NotAfter: now.AddDate(1, 0, 0)}}, Platform: &Platform{Installed: true, Ready: 1, Want: 1}, Domain: "play.example.org",
	}
}

func shows(kind, reason, message string) *Row {
	return &Row{Conditions: []metav1.Condition{{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}}, Reason: Reason(reason)}
}

func TestAGreenScreenIsGreen(t *testing.T) {
	for _, h := range CheckHealth(looked()) {
		if h.Level != Fine {
			t.Errorf("%s: %s: %s", h.Check, h.Level, h.Text)
		}
	}
	for _, h := range CheckHealth(Facts{}) {
		if h.Check != HealthRoutes && (h.Level != NotLookedAt || h.Text == "") { // there is no instance
			t.Errorf("%s was not looked at, and is %s: %s", h.Check, h.Level, h.Text)
		}
	}
	route := func(n int) (rows []*Row) {
		for range n {
			rows = append(rows, &Row{State: Running, Services: []bergv1.ServiceEndpoint{{Hostname: "01920000-0000-7000-8000-000000000001.play.example.org"}}})
		}
		return rows
	}
	for name, tc := range map[string]struct {
		change func(*Facts)
		check  string
		level  Level
		words  string
	}{
		"isolation": {func(f *Facts) {
			f.Isolation.Status, f.Isolation.Message = corev1.ConditionFalse, "pods reach each other"
		}, HealthIsolation, Danger, "reach each other"},
		"isolation, without rights": {func(f *Facts) {
			f.Isolation, f.Rows = nil, []*Row{shows(bergv1.ConditionNetworkPolicyCreated, bergv1.ReasonNotEnforced, "")}
		}, HealthIsolation, Danger, "1 instances"},
		"isolation, tested long ago":        {func(f *Facts) { f.Now = f.Now.Add(4 * time.Hour) }, HealthIsolation, Concern, "4h0m0s ago"},
		"isolation, off":                    {func(f *Facts) { f.Isolation, f.IsolationCheck = nil, "off" }, HealthIsolation, Concern, "not been verified"},
		"no Gateway":                        {func(f *Facts) { f.Gateway.Object = nil }, HealthGateway, Danger, "berg/gate does not exist"},
		"a Gateway that no Challenge needs": {func(f *Facts) { f.Gateway.Object, f.Listeners = nil, nil }, HealthGateway, Concern, "does not exist"},
		"a listener":                        {func(f *Facts) { f.Listeners = []string{"tls"} }, HealthGateway, Danger, "no listener tls"},
		"Gateway, without rights": {func(f *Facts) {
			f.Gateway, f.Rows = nil, []*Row{shows(bergv1.ConditionRoutesCreated, bergv1.ReasonGatewayNotReady, "GatewayClass x")}
		}, HealthGateway, Danger, "GatewayClass x"},
		"Gateway that serves": {func(f *Facts) { f.Gateway, f.Rows = nil, route(1) }, HealthGateway, Fine, "1 instances"},
		"routes of Cilium": {func(f *Facts) {
			f.Gateway.Class.Spec.ControllerName, f.Rows = "io.cilium/gateway-controller", route(1350)
		}, HealthRoutes, Danger, "about 1500"},
		"few routes of Cilium": {func(f *Facts) {
			f.Gateway.Class.Spec.ControllerName, f.Rows = "io.cilium/gateway-controller", route(1300)
		}, HealthRoutes, Fine, "1300 of about 1500"},
		"routes of Traefik": {func(f *Facts) {
			f.Gateway.Class.Spec.ControllerName, f.Rows = "traefik.io/gateway-controller", route(1)
		}, HealthRoutes, Fine, "providersThrottleDuration"},
		"node ports": {func(f *Facts) { f.NodePorts.Used = 2600 }, HealthNodePorts, Concern, "2600 of 2768"},
		"node ports that are used up": {func(f *Facts) {
			f.NodePorts, f.Rows = nil, []*Row{shows(bergv1.ConditionServicesCreated, bergv1.ReasonOutOfNodePorts, "")}
		}, HealthNodePorts, Danger, "all node ports"},
		"processes":                          {func(f *Facts) { f.ProcessLimits["b"] = -1 }, HealthProcesses, Concern, "pods on b"},
		"a certificate that expires":         {func(f *Facts) { f.Certificates[0].NotAfter = f.Now.Add(50 * time.Hour) }, HealthCertificate, Concern, "2 days"},
		"a certificate that has expired":     {func(f *Facts) { f.Certificates[0].NotAfter = f.Now.Add(-time.Hour) }, HealthCertificate, Danger, "expired"},
		"a certificate that browsers reject": {func(f *Facts) { f.Certificates[0].Err, f.Certificates[0].Untrusted = "unknown authority", true }, HealthCertificate, Concern, "unknown authority"},
		"a Gateway that is not reached":      {func(f *Facts) { f.Certificates[0] = Certificate{Listener: "http", Err: "refused"} }, HealthCertificate, NotLookedAt, "refused"},
		"no replica of the platform API":     {func(f *Facts) { f.Platform.Ready = 0 }, HealthPlatform, Danger, "no replica"},
		"no platform API":                    {func(f *Facts) { f.Platform = &Platform{} }, HealthPlatform, Fine, "not installed"},
		"the example's domain":               {func(f *Facts) { f.Domain = "challenges.example.com" }, HealthDomain, Concern, "an example"},
		"the example's domain, in a status": {func(f *Facts) {
			f.Domain, f.Rows = "", []*Row{{Services: []bergv1.ServiceEndpoint{{Hostname: "a.challenges.example.com"}}}}
		}, HealthDomain, Concern, "an example"},
		"a right that is missing": {func(f *Facts) { f.ProcessLimits, f.Unread = nil, map[string]string{HealthProcesses: "you may not"} }, HealthProcesses, NotLookedAt, "you may not"},
	} {
		f := looked()
		tc.change(&f)
		all := CheckHealth(f)
		for n, h := range all {
			if h.Check == tc.check && (h.Level != tc.level || !strings.Contains(h.Text, tc.words) || h.Level != Fine && h.Do == "") {
				t.Errorf("%s: %s: %s (%s)", name, h.Level, h.Text, h.Do)
			}
			if n > 0 && h.Level != Fine && all[n-1].Level == Fine {
				t.Errorf("%s: %s comes after what is fine", name, h.Check)
			}
		}
	}
}
