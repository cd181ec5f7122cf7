package follow

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// Metrics count the routes of Gateways of our class, and say when the certificates that these name expire.
func TestMetricsOfTheState(t *testing.T) {
	state := NewState(routing.NewTable(), "test/gate", []int32{80, 443}, nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(state)
	metrics := func() string {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, family := range families {
			for _, m := range family.Metric {
				var names []string
				for _, label := range m.Label {
					names = append(names, label.GetValue())
				}
				lines = append(lines, fmt.Sprintf("%s(%s)=%.0f", strings.TrimPrefix(family.GetName(), "berg_gate_"), strings.Join(names, "/"), m.Gauge.GetValue()))
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, " ")
	}
	expect := func(when, want string) {
		t.Helper()
		if got := metrics(); got != want {
			t.Errorf("%s the metrics are %s\nwant %s", when, got, want)
		}
	}
	gateway := func(name, class string, secrets ...gatewayv1.ObjectName) {
		object := &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name, Generation: 1},
			Spec: gatewayv1.GatewaySpec{GatewayClassName: gatewayv1.ObjectName(class), Listeners: []gatewayv1.Listener{
				{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType},
			}},
		}
		for i, secret := range secrets {
			object.Spec.Listeners = append(object.Spec.Listeners, gatewayv1.Listener{
				Name: gatewayv1.SectionName(fmt.Sprintf("https-%d", i)), Port: 443, Protocol: gatewayv1.HTTPSProtocolType,
				TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: secret}}},
			})
		}
		state.SetGateway(object)
	}
	route := func(name, parent string) {
		state.SetHTTPRoute(&gatewayv1.HTTPRoute{
			ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name},
			Spec:       gatewayv1.HTTPRouteSpec{CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: gatewayv1.ObjectName(parent)}}}},
		})
	}
	expect("without objects", "routes()=0")

	state.SetNamespace("berg", labels.Set{})
	state.SetClass(&gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "gate"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "test/gate"}})
	gateway("ours", "gate", "first", "second", "first")
	gateway("theirs", "traefik", "other")
	route("one", "ours")
	route("two", "ours")
	route("three", "theirs")
	const missing = "certificate_expiry_timestamp_seconds(berg/first)=0 certificate_expiry_timestamp_seconds(berg/second)=0 "
	expect("without certificates", missing+"routes()=2")

	for secret, expiry := range map[string]int64{"first": 1_900_000_000, "unused": 1} {
		leaf := &x509.Certificate{NotAfter: time.Unix(expiry, 0)}
		state.SetCertificate(types.NamespacedName{Namespace: "berg", Name: secret}, &tls.Certificate{Leaf: leaf}, nil)
	}
	expect("with one certificate", strings.Replace(missing, "first)=0", "first)=1900000000", 1)+"routes()=2")
	state.SetCertificate(types.NamespacedName{Namespace: "berg", Name: "first"}, nil, errors.New("gone"))
	state.DeleteRoute(routing.Key{Kind: routing.HTTPRoute, Namespace: "berg", Name: "one"})
	expect("after a deletion", missing+"routes()=1")
	gateway("ours", "gate", "second")
	expect("after an edit", "certificate_expiry_timestamp_seconds(berg/second)=0 routes()=1")
}

// A tenant may give its namespace the labels of an instance's, except for one.
func TestLabelsOfOthersNameNoChallenge(t *testing.T) {
	state := NewState(routing.NewTable(), "test/gate", []int32{80}, nil)
	registry := prometheus.NewRegistry()
	registry.MustRegister(state.Usage)
	for namespace, managed := range map[string]string{"challenge-a": bergv1.ManagedBy, "tenant": "team"} {
		state.SetNamespace(namespace, labels.Set{
			bergv1.LabelManagedBy: managed, bergv1.LabelChallengeNamespace: "berg", bergv1.LabelChallenge: "of-" + namespace,
		})
		state.SetHTTPRoute(&gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: types.UID(namespace)}})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(families)
	if !strings.Contains(text, "of-challenge-a") || strings.Contains(text, "of-tenant") {
		t.Error(text)
	}
}
