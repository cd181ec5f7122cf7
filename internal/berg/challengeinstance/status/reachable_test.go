package status

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

func controllerSays(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// routedInstance is an instance of one HTTP route whose pod is ready and whose Gateway serves it.
func routedInstance() Outcome {
	out := startingWith(nil, pod("web", true))
	out.Pinned.Containers[0].Ports = []bergv1.Port{{Port: 8000, Type: bergv1.PublicHTTPRoute}}
	out.Listeners = config.Gateway{Namespace: "berg", Name: "gate", HTTPListener: "http", TLSListener: "tls"}
	out.Endpoints = []manifests.Endpoint{{Service: &bergv1.ServiceEndpoint{Hostname: "a.example.com", Port: 443}}}
	gateway := &gatewayv1.Gateway{}
	gateway.Spec.GatewayClassName = "class"
	gateway.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: 443, Protocol: gatewayv1.HTTPSProtocolType}}
	gateway.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Value: "10.0.0.9"}}
	gateway.Status.Conditions = []metav1.Condition{
		controllerSays("Accepted", metav1.ConditionTrue, "Accepted", ""), controllerSays("Programmed", metav1.ConditionTrue, "Programmed", ""),
	}
	gateway.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "http", Conditions: []metav1.Condition{controllerSays("Programmed", metav1.ConditionTrue, "Programmed", "")}}}
	class := &gatewayv1.GatewayClass{}
	class.Spec.ControllerName = "example.com/controller"
	class.Status.Conditions = []metav1.Condition{controllerSays("Accepted", metav1.ConditionTrue, "Accepted", "")}
	out.Ways = Ways{
		Gateway: view.Gateway{Namespace: "berg", Name: "gate", Object: gateway, Class: class},
		Routes: map[string]Route{"web-8000": {Created: noon.Add(-time.Hour), Parents: []gatewayv1.RouteParentStatus{{
			ParentRef:      gatewayv1.ParentReference{Namespace: ptr.To[gatewayv1.Namespace]("berg"), Name: "gate", SectionName: ptr.To[gatewayv1.SectionName]("http")},
			ControllerName: "example.com/controller",
			Conditions:     []metav1.Condition{controllerSays("Accepted", metav1.ConditionTrue, "Accepted", ""), controllerSays("ResolvedRefs", metav1.ConditionTrue, "ResolvedRefs", "")},
		}}}},
		Services: map[string]Service{"web": {Leads: true}},
	}
	return out
}

func setRoute(o *Outcome, change func(*Route)) {
	route := o.Ways.Routes["web-8000"]
	change(&route)
	o.Ways.Routes["web-8000"] = route
}

func TestAnInstanceIsRunningWhenPlayersReachIt(t *testing.T) {
	const routes, services = bergv1.ConditionRoutesCreated, bergv1.ConditionServicesCreated
	gatewayCondition := func(kind, reason, message string) func(*Outcome) {
		return func(o *Outcome) {
			meta.SetStatusCondition(&o.Ways.Gateway.Object.Status.Conditions, controllerSays(kind, metav1.ConditionFalse, reason, message))
		}
	}
	routeCondition := func(kind, reason, message string) func(*Outcome) {
		return func(o *Outcome) {
			setRoute(o, func(r *Route) {
				meta.SetStatusCondition(&r.Parents[0].Conditions, controllerSays(kind, metav1.ConditionFalse, reason, message))
			})
		}
	}
	byGate := func(o *Outcome) {
		o.Ways.Gateway.Class.Spec.ControllerName = gateadmin.Controller
		o.Ways.Gate = &Gate{Namespace: "operators", Replicas: []string{"10.0.0.7:9090"}}
		setRoute(o, func(r *Route) { r.Parents = nil })
	}
	absentSince := func(since time.Duration) func(*Outcome) {
		return func(o *Outcome) { o.Ways.Gate.Replicas, o.Ways.Gate.AbsentSince = nil, noon.Add(-since) }
	}
	young := func(o *Outcome) { setRoute(o, func(r *Route) { r.Created = noon }) }
	for name, tc := range map[string]struct {
		modify []func(*Outcome)
		// condition that shows the obstacle; "" if none does, and running if there is none.
		condition, reason string
		status            metav1.ConditionStatus
		words             []string
		cause             bergv1.Cause
		running           bool
	}{
		"served":                 {running: true},
		"a Gateway that is gone": {[]func(*Outcome){func(o *Outcome) { o.Ways.Gateway.Object = nil }}, routes, "GatewayNotReady", "False", []string{"Gateway berg/gate does not exist"}, bergv1.CauseRefused, false},
		"a class that is gone": {
			[]func(*Outcome){func(o *Outcome) { o.Ways.Gateway.Class, o.Ways.Gateway.Object.Status = nil, gatewayv1.GatewayStatus{} }},
			routes, "GatewayNotReady", "False",
			[]string{"berg/gate", "GatewayClass class", "does not exist"},
			bergv1.CauseRefused, false,
		},
		"a class that no controller takes": {[]func(*Outcome){func(o *Outcome) {
			o.Ways.Gateway.Class.Status.Conditions, o.Ways.Gateway.Object.Status.Conditions = nil, []metav1.Condition{controllerSays("Accepted", "Unknown", "Pending", "Waiting for controller")}
		}}, routes, "GatewayNotReady", "False", []string{"GatewayClass class", "controller example.com/controller", "not installed"}, bergv1.CauseRefused, false},
		"a Gateway that is refused":    {[]func(*Outcome){gatewayCondition("Accepted", "InvalidParameters", "no")}, routes, "GatewayNotReady", "False", []string{"InvalidParameters: no"}, bergv1.CauseRefused, false},
		"a Gateway without an address": {[]func(*Outcome){gatewayCondition("Programmed", "AddressNotAssigned", "no address")}, routes, "GatewayNotReady", "False", []string{"AddressNotAssigned"}, bergv1.CauseRefused, false},
		"a listener that is not there": {[]func(*Outcome){func(o *Outcome) { o.Listeners.HTTPListener = "https" }}, routes, "GatewayNotReady", "False", []string{"no listener https"}, bergv1.CauseRefused, false},
		"a listener without a certificate": {[]func(*Outcome){func(o *Outcome) {
			meta.SetStatusCondition(&o.Ways.Gateway.Object.Status.Listeners[0].Conditions, controllerSays("ResolvedRefs", "False", "InvalidCertificateRef", "no Secret"))
		}}, routes, "GatewayNotReady", "False", []string{"listener http", "no Secret", "example.com/controller"}, bergv1.CauseRefused, false},
		"a route that is not accepted":    {[]func(*Outcome){routeCondition("Accepted", "NotAllowedByListeners", "no")}, routes, "RouteRefused", "False", []string{"web-8000", "example.com/controller", "listener http", "NotAllowedByListeners: no"}, bergv1.CauseRefused, false},
		"a route without its Service":     {[]func(*Outcome){routeCondition("ResolvedRefs", "BackendNotFound", "web")}, routes, "RouteRefused", "False", []string{"BackendNotFound"}, bergv1.CauseRefused, false},
		"a route without an answer":       {[]func(*Outcome){func(o *Outcome) { setRoute(o, func(r *Route) { r.Parents = nil }) }}, routes, "RoutePending", "Unknown", []string{"web-8000", "not answered"}, bergv1.CauseAddressPending, false},
		"an answer of another Gateway":    {[]func(*Outcome){func(o *Outcome) { setRoute(o, func(r *Route) { r.Parents[0].ParentRef.Name = "other" }) }}, routes, "RoutePending", "Unknown", []string{"not answered"}, bergv1.CauseAddressPending, false},
		"a new route without an answer":   {[]func(*Outcome){young, func(o *Outcome) { setRoute(o, func(r *Route) { r.Parents = nil }) }}, "", "", "", nil, bergv1.CauseNotReadyYet, false},
		"a new route that is refused":     {[]func(*Outcome){young, routeCondition("ResolvedRefs", "BackendNotFound", "web")}, "", "", "", nil, bergv1.CauseNotReadyYet, false},
		"a Service without endpoints":     {[]func(*Outcome){func(o *Outcome) { o.Ways.Services["web"] = Service{} }}, services, "NoEndpoints", "Unknown", []string{"web leads to no pod"}, bergv1.CauseAddressPending, false},
		"a new Service without endpoints": {[]func(*Outcome){func(o *Outcome) { o.Ways.Services["web"] = Service{Created: noon} }}, "", "", "", nil, bergv1.CauseNotReadyYet, false},
		"pods that are not ready": {
			[]func(*Outcome){func(o *Outcome) { o.Pods = []corev1.Pod{pod("web", false)} }, gatewayCondition("Accepted", "Invalid", "no")},
			routes, "GatewayNotReady", "False",
			[]string{"Invalid: no"},
			bergv1.CauseRefused, false,
		},
		"a gate that serves it before its status says so":  {[]func(*Outcome){byGate, func(o *Outcome) { o.Gate = ConnectionMade }}, "", "", "", nil, "", true},
		"a gate that is not reached, and has not answered": {[]func(*Outcome){byGate, func(o *Outcome) { o.Gate = ConnectionNotMade }}, routes, "RoutePending", "Unknown", []string{"not answered"}, bergv1.CauseAddressPending, false},
		"a gate of which one replica does not serve it": {[]func(*Outcome){byGate, func(o *Outcome) {
			o.Unserved = NewUnserved(o.Ways.Gateway, "the gate at 10.0.0.7:9090 does not serve a host of the instance yet", false)
		}}, routes, "RoutePending", "Unknown", []string{"berg/gate", "10.0.0.7:9090"}, bergv1.CauseAddressPending, false},
		"a gate of which one replica does not reach the pod": {[]func(*Outcome){byGate, func(o *Outcome) {
			o.Unserved = NewUnserved(o.Ways.Gateway, "the gate at 10.0.0.7:9090 does not reach a pod of the instance", true)
		}}, routes, "PodUnreached", "Unknown", []string{"10.0.0.7:9090"}, bergv1.CauseRefused, false},
		"a gate without a replica":         {[]func(*Outcome){byGate, absentSince(settleTime)}, routes, "GatewayNotReady", "False", []string{"no replica of the gate", "kubectl get pods -n operators"}, bergv1.CauseRefused, false},
		"a gate that is replaced just now": {[]func(*Outcome){byGate, absentSince(settleTime - time.Second)}, "", "", "", nil, bergv1.CauseNotReadyYet, false},
		"a gate that refuses the route": {[]func(*Outcome){
			func(o *Outcome) { o.Ways.Gate = &Gate{Replicas: []string{"10.0.0.7:9090"}} }, routeCondition("Accepted", "NotAllowedByListeners", "no"),
		}, routes, "RouteRefused", "False", []string{"NotAllowedByListeners: no"}, bergv1.CauseRefused, false},
		"a port that needs no Gateway": {[]func(*Outcome){func(o *Outcome) {
			o.Ways.Gateway, o.Pinned.Containers[0].Ports[0].Type, o.Ways.Services = view.Gateway{}, bergv1.PublicPort, map[string]Service{"web-nodeport": {Leads: true}}
		}}, "", "", "", nil, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			out := routedInstance()
			for _, modify := range tc.modify {
				modify(&out)
			}
			ready := Compute(out, config.Challenge{}, noon)
			s := out.Instance.Status
			if isRunning := s.Phase == bergv1.PhaseRunning; isRunning != tc.running || isRunning != (ready.Status == metav1.ConditionTrue) || isRunning != (s.ReadyAt != nil) || s.Cause != tc.cause {
				t.Errorf("phase %s, ready %s, cause %s", s.Phase, ready.Status, s.Cause)
			}
			expectShown(t, s.Conditions, tc.condition, tc.reason, tc.status, tc.words)

			// The same of an instance that runs.
			if tc.running || tc.condition == "" {
				return
			}
			out = routedInstance()
			wasReady(out.Instance)
			for _, modify := range tc.modify {
				modify(&out)
			}
			ready = Compute(out, config.Challenge{}, noon)
			if ready.Status == metav1.ConditionTrue || out.Instance.Status.Phase != bergv1.PhaseRunning || meta.IsStatusConditionTrue(out.Instance.Status.Conditions, bergv1.ConditionHealthy) {
				t.Errorf("it ran: phase %s, ready %s: %s", out.Instance.Status.Phase, ready.Status, ready.Message)
			}
			expectShown(t, out.Instance.Status.Conditions, tc.condition, tc.reason, tc.status, tc.words)
		})
	}
}

func TestWhatTheGateIsAsked(t *testing.T) {
	asked := func(change func(*Outcome)) []AskedHost {
		out := routedInstance()
		out.Ways.Gate = &Gate{Replicas: []string{"10.0.0.7:9090"}}
		change(&out)
		return ToAsk(out, noon)
	}
	usual := asked(func(*Outcome) {})
	quiet := asked(func(o *Outcome) { o.Pinned.Containers[0].Ports[0].ConnectAtStart = ptr.To(false) })
	if len(usual) != 1 || usual[0] != (AskedHost{"a.example.com", true}) || len(quiet) != 1 || quiet[0] != (AskedHost{"a.example.com", false}) {
		t.Errorf("%v, without a connection at the start: %v", usual, quiet)
	}
	for name, change := range map[string]func(*Outcome){
		"pods that are not ready": func(o *Outcome) { o.Pods = []corev1.Pod{pod("web", false)} },
		"a gate that is absent":   func(o *Outcome) { o.Ways.Gate.Replicas = nil },
		"no endpoints":            func(o *Outcome) { o.Ways.Services["web"] = Service{} },
		"a prepared container that waits for its flag": func(o *Outcome) {
			o.Prepared, o.Pods = true, []corev1.Pod{pod("web", false)}
			o.Pinned.Containers[0].DynamicFlag = &bergv1.DynamicFlag{Env: &bergv1.FlagEnv{Name: "FLAG"}}
			o.Pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: createContainerConfigError},
			}}}
		},
	} {
		if all := asked(change); len(all) > 0 {
			t.Errorf("%s: %v", name, all)
		}
	}
}

func expectShown(t *testing.T, all []metav1.Condition, kind, reason string, status metav1.ConditionStatus, words []string) {
	t.Helper()
	if kind == "" {
		return
	}
	c := meta.FindStatusCondition(all, kind)
	if c.Status != status || c.Reason != reason {
		t.Errorf("%s is %s, %s: %s", kind, c.Status, c.Reason, c.Message)
	}
	for _, word := range words {
		if !strings.Contains(c.Message, word) {
			t.Errorf("%q is not in: %s", word, c.Message)
		}
	}
}

func TestAServiceThatCannotComeBack(t *testing.T) {
	out := routedInstance()
	wasReady(out.Instance)
	out.Problem = NewProblem(bergv1.ConditionServicesCreated, errors.New("Internal error occurred: failed to allocate a nodePort: range is full"), "")
	if ready := Compute(out, config.Challenge{}, noon); ready.Status != metav1.ConditionTrue {
		t.Errorf("the Service is there: %s", ready.Message)
	}
	delete(out.Ways.Services, "web")
	ready := Compute(out, config.Challenge{}, noon)
	if ready.Status == metav1.ConditionTrue || ready.Reason != bergv1.ReasonServiceMissing || !strings.Contains(ready.Message, "range is full") {
		t.Errorf("%s, %s: %s", ready.Status, ready.Reason, ready.Message)
	}
}

func TestNodePortsThatAreUsedUp(t *testing.T) {
	p := NewProblem(bergv1.ConditionServicesCreated, errors.New("Internal error occurred: failed to allocate a nodePort: range is full"), "")
	if p.Class != outcome.Retry || p.Reason != bergv1.ReasonOutOfNodePorts || !strings.Contains(p.Message, "End instances") {
		t.Errorf("%+v", p)
	}
	if cause := view.FindCause(p.Condition, view.Reason(p.Reason)); cause != bergv1.CauseNoCapacity {
		t.Errorf("players are shown %s", cause)
	}
}

// A pod of a healthy start, as its node reports it. Ready changes once, and no condition of a problem becomes False.
func TestAHealthyStartIsReadyOnce(t *testing.T) {
	began := metav1.NewTime(noon.Add(-time.Second))
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}}
	stage := func(ready bool, s corev1.ContainerStatus) corev1.Pod {
		p := pod("web", ready)
		p.UID, p.Status.PodIP, p.Status.HostIP = "uid", "10.1.0.1", "10.0.0.5"
		p.Status.Conditions[0].LastTransitionTime = began
		s.Name = "web"
		p.Status.ContainerStatuses = []corev1.ContainerStatus{s}
		return p
	}
	out := startingWith(nil)
	out.Pinned.Containers[0].Ports = []bergv1.Port{{Port: 1337, Type: bergv1.PublicPort}}
	out.Endpoints = []manifests.Endpoint{{Service: &bergv1.ServiceEndpoint{Hostname: "a", Port: 30001}}}
	out.Ways.Services = map[string]Service{"web-nodeport": {Leads: true}}
	reached, changes, last := false, 0, metav1.ConditionFalse
	for n, p := range []corev1.Pod{
		stage(false, corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}),
		stage(false, corev1.ContainerStatus{State: state, Started: ptr.To(false)}),
		stage(false, corev1.ContainerStatus{State: state, Started: ptr.To(false)}),
		stage(false, corev1.ContainerStatus{State: state, Started: ptr.To(true)}),
		stage(false, corev1.ContainerStatus{State: state, Ready: true, Started: ptr.To(true)}),
		stage(true, corev1.ContainerStatus{State: state, Ready: true, Started: ptr.To(true)}),
	} {
		out.Pods = []corev1.Pod{p}
		to := ToOpen(out, noon)
		out.Opened = reached && len(to.Pods) == 1 // as reach.Waiter.Early reports it
		reached = reached || len(to.Addresses) > 0
		out.Connecting = !out.Opened && n < 2
		ready := Compute(out, config.Challenge{}, noon)
		if ready.Status != last {
			changes, last = changes+1, ready.Status
		}
		for _, kind := range bergv1.ProblemConditions {
			if c := meta.FindStatusCondition(out.Instance.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
				t.Errorf("stage %d: %s is False: %s", n, kind, c.Message)
			}
		}
	}
	if changes != 1 || last != metav1.ConditionTrue {
		t.Errorf("Ready changed %d times and is %s", changes, last)
	}
}
