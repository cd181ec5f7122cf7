package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
)

var noon = time.Date(2030, 6, 1, 12, 0, 0, 0, time.UTC)

func env(s *Survey, pairs ...string) {
	c := &s.Deployment.Spec.Template.Spec.Containers[0]
	for i := 0; i < len(pairs); i += 2 {
		c.Env = append(c.Env, corev1.EnvVar{Name: pairs[i], Value: pairs[i+1]})
	}
}

// healthySurvey is the survey of a cluster without problems.
func healthySurvey() Survey {
	s := Survey{
		Now: noon, SkewKnown: true, Server: "v1.37.1", Plugin: "v0.1.0", Unreadable: map[string]string{},
		APIs: map[string]Served{
			APIBerg:    {Resources: []string{"challenges", "challengeinstances"}},
			APIGateway: {Resources: []string{"gateways", "httproutes", "tlsroutes"}},
			APICilium:  {Resources: []string{"ciliumnetworkpolicies"}},
		},
		Rights: []Right{{Allowed: true}}, Leader: "pod-1_x", Renewed: noon, LeaseTime: 15 * time.Second,
		HTTPS: &TLS{NotAfter: noon.AddDate(0, 2, 0), Issuer: "R3"},
		Names: map[string][]string{ProbeName + ".play.example.org": {"192.0.2.1"}}, CiliumAgents: Present,
		Policies: map[string]Policy{"berg-operator-fence": {}, "berg-operator-fence-deletions": {}, "berg-operator-own-namespace": {}, "berg-operator-berg-record-logs": {Gap: "it does not exist"}, warmPolicy: {}, "berg-gateway-namespaces": {}},
	}
	s.Deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "berg-operator-system", Name: "berg-operator-controller-manager"}}
	s.Deployment.Spec.Replicas = ptr.To[int32](2)
	s.Deployment.Status.ReadyReplicas, s.Deployment.Status.UpdatedReplicas = 2, 2
	s.Deployment.Spec.Template.Spec.Containers = []corev1.Container{{Image: "ghcr.io/x/berg-operator:v0.1.3"}}
	env(&s, "CHALLENGE_DOMAIN", "play.example.org", "CHALLENGE_HTTP_PORT", "443", "CHALLENGE_TLS_PORT", "8443")
	s.Pods = []corev1.Pod{{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: isolationCondition, Status: corev1.ConditionTrue, LastProbeTime: metav1.NewTime(noon)}}}}}
	s.Gateway = &gatewayv1.Gateway{}
	s.Gateway.Status.Conditions = []metav1.Condition{{Type: "Programmed", Status: metav1.ConditionTrue}}
	s.Gateway.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Value: "192.0.2.1"}}
	s.Gateway.Spec.Listeners = []gatewayv1.Listener{
		{Name: "http", Protocol: gatewayv1.HTTPSProtocolType, Port: 443, Hostname: ptr.To[gatewayv1.Hostname]("*.play.example.org")},
		{Name: "tls", Protocol: gatewayv1.TLSProtocolType, Port: 8443},
	}
	for i := range s.Gateway.Spec.Listeners {
		allowRoutes(&s.Gateway.Spec.Listeners[i], gatewayv1.NamespacesFromSelector, bergv1.LabelManagedBy, "berg")
	}
	s.GatewayRead, s.GatewayClass = true, &gatewayv1.GatewayClass{}
	s.ProcessLimits, s.Platform = map[string]int64{"a": 1024}, &view.Platform{Installed: true, Ready: 2, Want: 2}
	s.InstancePods = []corev1.Pod{{}}
	s.Nodes = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	s.Nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	s.Nodes[0].Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	s.PodsOnNodes = map[string]int{"a": 10}
	s.Challenges = []bergv1.Challenge{{Spec: bergv1.ChallengeSpec{Containers: []bergv1.Container{{Ports: []bergv1.Port{{Type: bergv1.PublicHTTPRoute}}}}}}}
	return s
}

// allowRoutes sets the namespaces from which a listener allows routes.
func allowRoutes(l *gatewayv1.Listener, from gatewayv1.FromNamespaces, label ...string) {
	l.AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: &from}}
	if len(label) > 0 {
		l.AllowedRoutes.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{label[0]: label[1]}}
	}
}

// setImagesReady sets the condition ImagesReady of the Challenge.
func setImagesReady(s *Survey, status metav1.ConditionStatus, reason, message string) {
	s.InstancePods = nil
	c := &s.Challenges[0]
	c.Namespace, c.Name = "berg", "guestbook"
	c.Status.Conditions = []metav1.Condition{{Type: bergv1.ChallengeConditionImagesReady, Status: status, Reason: reason, Message: message}}
}

func TestAlternativeHealthySetups(t *testing.T) {
	for name, change := range map[string]func(*Survey){
		"a wider wildcard":       func(s *Survey) { s.Gateway.Spec.Listeners[0].Hostname = ptr.To[gatewayv1.Hostname]("*.Example.org") },
		"any hostname":           func(s *Survey) { s.Gateway.Spec.Listeners[0].Hostname = ptr.To[gatewayv1.Hostname]("") },
		"routes from everywhere": func(s *Survey) { allowRoutes(&s.Gateway.Spec.Listeners[0], gatewayv1.NamespacesFromAll) },
		"the other label": func(s *Survey) {
			allowRoutes(&s.Gateway.Spec.Listeners[0], gatewayv1.NamespacesFromSelector, bergv1.LabelComponent, bergv1.ComponentNamespace)
		},
		"verified when the operator started": func(s *Survey) {
			s.Pods[0].Status.Conditions[0].LastProbeTime = metav1.NewTime(noon.Add(-24 * time.Hour))
		},
		"no agent of Cilium":   func(s *Survey) { s.CiliumAgents = Missing },
		"images on every node": func(s *Survey) { setImagesReady(s, metav1.ConditionTrue, bergv1.ImagesPulled, "") },
		"settings of a ConfigMap": func(s *Survey) {
			s.Shared = map[string]string{"CHALLENGE_DOMAIN": "play.example.org\r\n"}
			s.Deployment.Spec.Template.Spec.Containers[0].Env = s.Deployment.Spec.Template.Spec.Containers[0].Env[1:]
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthySurvey()
			change(&s)
			for _, l := range Check(s) {
				if l.Level != console.OK {
					t.Errorf("%s: %s: %s", l.Check, l.Level, l.Text)
				}
			}
		})
	}
}

func TestHealthyCluster(t *testing.T) {
	for _, l := range Check(healthySurvey()) {
		if l.Level != console.OK {
			t.Errorf("%s: %s: %s", l.Check, l.Level, l.Text)
		}
	}
}

func TestEveryCheckReportsItsProblem(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Survey)
		check  string
		level  console.Level
		text   string
	}{
		"old Kubernetes":    {func(s *Survey) { s.Server = "v1.31.2" }, "Kubernetes", console.Problem, "1.33"},
		"clock":             {func(s *Survey) { s.Skew = 2 * time.Minute }, "clock", console.Problem, "behind"},
		"clock, the other":  {func(s *Survey) { s.Skew = -10 * time.Second }, "clock", console.Warning, "ahead"},
		"no CRDs":           {func(s *Survey) { delete(s.APIs, APIBerg) }, "CRDs", console.Problem, "not installed"},
		"a permission":      {func(s *Survey) { s.Rights = []Right{{Verb: "patch", Resource: "challenges", For: "freeze"}} }, "your permissions", console.Warning, "patch challenges (freeze)"},
		"a right of others": {func(s *Survey) { s.Rights = []Right{{Verb: "get", Resource: "pods/log", For: "logs"}} }, "your permissions", console.Warning, "get pods/log (logs)"},
		"no operator":       {func(s *Survey) { s.Deployment = nil }, "operator", console.Problem, "was not found"},
		"operator hidden":   {func(s *Survey) { s.Unreadable["operator"] = "you may not" }, "operator", console.Unknown, "you may not"},
		"scaled to nothing": {func(s *Survey) { s.Deployment.Spec.Replicas = ptr.To[int32](0) }, "operator", console.Problem, "scaled to 0"},
		"none ready":        {func(s *Survey) { s.Deployment.Status.ReadyReplicas = 0 }, "operator", console.Problem, "no replica"},
		"wrong setting":     {func(s *Survey) { s.Deployment.Status.UpdatedReplicas = 1 }, "operator", console.Warning, "old pods keep working"},
		"no leader":         {func(s *Survey) { s.Leader = "" }, "leader", console.Problem, "no replica is leader"},
		"silent leader":     {func(s *Survey) { s.Renewed = noon.Add(-time.Minute) }, "leader", console.Problem, "not renewed its lease"},
		"no fence":          {func(s *Survey) { s.Policies["berg-operator-fence"] = Policy{Gap: "it does not exist"} }, "operator's account", console.Warning, "every namespace"},
		"a fence for others": {func(s *Survey) {
			s.Policies["berg-operator-fence"] = Policy{Gap: "it does not exist", Needs: []string{"quix.io", "platform.operator.kibaship.com"}}
		}, "operator's account", console.Problem, "quix.io, platform.operator.kibaship.com start nothing new"},
		"not confined": {func(s *Survey) {
			s.Policies["berg-operator-tunnel-confined-pods"] = Policy{Gap: "its ValidatingAdmissionPolicyBinding lacks the action Deny", Needs: []string{"usvc-dev.developer.microsoft.com"}}
		}, "pods of networks", console.Problem, "lacks the action Deny"},
		"routes of tenants": {func(s *Survey) { s.Policies["berg-gateway-namespaces"] = Policy{Gap: "it does not exist"} }, "routes of others", console.Warning, "under your domain"},
		"logs of others": {func(s *Survey) {
			env(s, "RECORD_RETENTION", "24h")
			s.Policies["berg-operator-berg-record-logs"] = Policy{Gap: "its failurePolicy is not Fail"}
		}, "logs of records", console.Warning, "read logs in every namespace"},
		"pods of others": {func(s *Survey) {
			env(s, "CHALLENGE_WARM_MAX_INSTANCES", "4")
			s.Policies[warmPolicy] = Policy{Gap: "it does not exist"}
		}, "prepared pods", console.Warning, "pods in every namespace"},
		"fence hidden":     {func(s *Survey) { s.Policies["berg-operator-fence"] = Policy{Hidden: true} }, "operator's account", console.Unknown, "may not see"},
		"other version":    {func(s *Survey) { s.Plugin = "v0.3.0" }, "versions", console.Warning, "plugin 0.3.0"},
		"no routes":        {func(s *Survey) { s.APIs[APIGateway] = Served{Resources: []string{"httproutes"}} }, "Gateway API", console.Warning, "tlsroutes"},
		"no Gateway":       {func(s *Survey) { s.Gateway = nil }, "Gateway", console.Problem, "berg/berg-gateway"},
		"no controller":    {func(s *Survey) { s.Gateway.Status.Conditions = nil }, "Gateway", console.Problem, "no controller"},
		"no listener":      {func(s *Survey) { s.Gateway.Spec.Listeners = s.Gateway.Spec.Listeners[:1] }, "listener tls", console.Warning, "no listener"},
		"other protocol":   {func(s *Survey) { env(s, "CHALLENGE_HTTP_TLS", "false") }, "listener http", console.Problem, "HTTPS"},
		"HTTPS at port 80": {func(s *Survey) { env(s, "CHALLENGE_HTTP_TLS", "true", "CHALLENGE_HTTP_PORT", "80") }, "listener http", console.Problem, "HTTPS"},
		"other domain":     {func(s *Survey) { s.Gateway.Spec.Listeners[0].Hostname = ptr.To[gatewayv1.Hostname]("*.other.org") }, "listener http", console.Problem, "*.other.org"},
		"part of a label":  {func(s *Survey) { s.Gateway.Spec.Listeners[0].Hostname = ptr.To[gatewayv1.Hostname]("*.ample.org") }, "listener http", console.Problem, "*.ample.org"},
		"one name":         {func(s *Survey) { s.Gateway.Spec.Listeners[0].Hostname = ptr.To[gatewayv1.Hostname]("play.example.org") }, "listener http", console.Problem, "play.example.org"},
		"a narrower domain": {func(s *Survey) {
			s.Gateway.Spec.Listeners[0].Hostname = ptr.To[gatewayv1.Hostname]("*.x.play.example.org")
		}, "listener http", console.Problem, "*.x.play.example.org"},
		"nothing allowed": {func(s *Survey) { s.Gateway.Spec.Listeners[0].AllowedRoutes = nil }, "listener http", console.Problem, "its own namespace only"},
		"same namespace":  {func(s *Survey) { allowRoutes(&s.Gateway.Spec.Listeners[0], gatewayv1.NamespacesFromSame) }, "listener http", console.Problem, "its own namespace only"},
		"other label": {func(s *Survey) {
			allowRoutes(&s.Gateway.Spec.Listeners[0], gatewayv1.NamespacesFromSelector, "routes", "yes")
		}, "listener http", console.Problem, "routes=yes"},
		"no label":          {func(s *Survey) { allowRoutes(&s.Gateway.Spec.Listeners[0], gatewayv1.NamespacesFromSelector) }, "listener http", console.Problem, "empty selector"},
		"no pod":            {func(s *Survey) { s.InstancePods = nil }, "image pulls", console.Unknown, "no instance has pods"},
		"not pulled":        {func(s *Survey) { setImagesReady(s, metav1.ConditionFalse, bergv1.ImagesPullFailed, "web:1: denied") }, "images before the event", console.Problem, "berg/guestbook: web:1: denied"},
		"asked for in vain": {func(s *Survey) { s.Challenges[0].Spec.Warm = &bergv1.Warm{Min: 2} }, "prepared instances", console.Warning, "CHALLENGE_WARM_MAX_INSTANCES is 0"},
		"none prepared": {func(s *Survey) {
			env(s, "CHALLENGE_WARM_MAX_INSTANCES", "4")
			s.Challenges[0].Status.Conditions = append(s.Challenges[0].Status.Conditions, metav1.Condition{
				Type: bergv1.ChallengeConditionWarm, Status: metav1.ConditionFalse, Reason: bergv1.WarmNoCapacity, Message: "Pods of players find no node",
			})
		}, "prepared instances", console.Warning, "Pods of players find no node"},
		"no right to prepare": {func(s *Survey) {
			env(s, "CHALLENGE_WARM_MAX_INSTANCES", "4")
			s.Challenges[0].Spec.Warm, s.Policies[warmPolicy] = &bergv1.Warm{Min: 2}, Policy{Gap: "it does not exist"}
		}, "prepared instances", console.Problem, "config/berg/warm is not in force: it does not exist"},
		"being pulled":  {func(s *Survey) { setImagesReady(s, metav1.ConditionFalse, bergv1.ImagesPulling, "1 of 2") }, "image pulls", console.Unknown, "no instance has pods"},
		"unknown names": {func(s *Survey) { s.Shared = map[string]string{"CHALLENGE_DOMAINS": "a"} }, "settings", console.Problem, "CHALLENGE_DOMAINS is no setting"},
		"replaced settings": {func(s *Survey) {
			env(s, "CHALLENGE_MAX_INSTANCES", "7")
			s.Shared = map[string]string{"CHALLENGE_MAX_INSTANCES": "9", "GATE_DRAIN": "9s"}
		}, "settings", console.Warning, "from the ConfigMap berg-operator-settings: GATE_DRAIN; the Deployment replaces what the ConfigMap says of CHALLENGE_MAX_INSTANCES"},
		"replaced settings of the platform API and of the gate": {func(s *Survey) {
			s.API = &corev1.Container{Env: []corev1.EnvVar{{Name: "TOKEN_SECRET", Value: "own"}}}
			s.Gate = &corev1.Container{Env: []corev1.EnvVar{{Name: "GATE_DRAIN", Value: "20s"}, {Name: "GATE_MAX_CONNECTIONS", Value: "20000"}}}
			s.Shared = map[string]string{"GATE_DRAIN": "9s", "GATE_MAX_CONNECTIONS": "7", "TOKEN_SECRET": "shared"}
		}, "settings", console.Warning, "berg-operator-settings: GATE_MAX_CONNECTIONS; the Deployment replaces what the ConfigMap says of GATE_DRAIN, TOKEN_SECRET"},
		"a replaced option": {func(s *Survey) {
			s.Deployment.Spec.Template.Spec.Containers[0].Args = []string{"--leader-elect", "--challenge-max-instances", "7"}
			s.Shared = map[string]string{"CHALLENGE_MAX_INSTANCES": "9"}
		}, "settings", console.Warning, "the Deployment replaces what the ConfigMap says of CHALLENGE_MAX_INSTANCES"},
		"an option": {func(s *Survey) {
			s.Deployment.Spec.Template.Spec.Containers[0].Args = []string{"--network-policy=none", "--network-policy=cilium"}
			delete(s.APIs, APICilium)
		}, "network policy", console.Problem, "no instance starts"},
		"invalid values": {func(s *Survey) {
			s.Shared, s.SharedProblem = map[string]string{"CHALLENGE_HTTP_PORT": "http"}, `berg-gate: GATE_DRAIN="x": must be a duration`
		}, "settings", console.Problem, `former settings, and do not start again with those of the ConfigMap: berg-gate: GATE_DRAIN="x"`},
		"a program that does not start": {
			func(s *Survey) { s.Refused = map[string]string{"berg-api": `RATE="x": must be a number`} },
			"settings", console.Problem, `berg-api does not start: RATE="x"`,
		},
		"the gate protects another namespace": {func(s *Survey) {
			s.Gate = &corev1.Container{Env: []corev1.EnvVar{{Name: "GATEWAY_NAMESPACE", Value: "infra"}}}
		}, "Gateway", console.Warning, "GATEWAY_NAMESPACE of the gate is infra, and that of the operator berg: "},
		"replaced settings that no check uses": {func(s *Survey) {
			env(s, "SOURCE_BUDGET", "7")
			s.Shared = map[string]string{"SOURCE_BUDGET": "9"}
		}, "settings", console.Warning, "the Deployment replaces what the ConfigMap says of SOURCE_BUDGET"},
		"settings replaced by options": {func(s *Survey) {
			s.Deployment.Spec.Template.Spec.Containers[0].Args = []string{"--gateway-name=other"}
			s.Shared = map[string]string{"GATEWAY_NAME": "shared"}
		}, "settings", console.Warning, "from options of the Deployment: GATEWAY_NAME; "},
		"hidden settings": {func(s *Survey) { s.Unread = []string{"ConfigMap berg"} }, "settings", console.Unknown, "ConfigMap berg"},
		"a setting of a Secret": {func(s *Survey) {
			c := &s.Deployment.Spec.Template.Spec.Containers[0]
			c.Env = append(c.Env, corev1.EnvVar{Name: "PULL_SECRET_NAME", ValueFrom: &corev1.EnvVarSource{}})
		}, "settings", console.Unknown, "PULL_SECRET_NAME"},
		"other port": {func(s *Survey) { s.Gateway.Spec.Listeners[0].Port = 444 }, "listener http", console.Warning, "444"},
		"no certificate": {func(s *Survey) {
			s.Gateway.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "http", Conditions: []metav1.Condition{{Type: "ResolvedRefs", Status: metav1.ConditionFalse, Reason: "InvalidCertificateRef"}}}}
		}, "listener http", console.Problem, "InvalidCertificateRef"},
		"the hosts of another Gateway": {func(s *Survey) {
			s.Gateway.Status.Listeners = []gatewayv1.ListenerStatus{{Name: "http", Conditions: []metav1.Condition{
				{Type: "Programmed", Status: metav1.ConditionFalse, Reason: "Invalid", Message: "the other conditions say why"},
				{Type: "Conflicted", Status: metav1.ConditionTrue, Reason: "HostnameConflict", Message: "an older Gateway has the host name"},
			}}}
		}, "listener http", console.Problem, "an older Gateway has the host name"},
		"no name": {func(s *Survey) {
			s.Names = map[string][]string{}
			s.NameErrors = map[string]string{ProbeName + ".play.example.org": "the name does not exist"}
		}, "DNS name", console.Problem, "does not exist"},
		"name elsewhere":                {func(s *Survey) { s.Names[ProbeName+".play.example.org"] = []string{"192.0.2.9"} }, "DNS name", console.Warning, "192.0.2.9"},
		"expired":                       {func(s *Survey) { s.HTTPS.NotAfter = noon.Add(-time.Hour) }, "certificate, HTTPS", console.Problem, "expired"},
		"expires soon":                  {func(s *Survey) { s.HTTPS.NotAfter = noon.Add(48 * time.Hour) }, "certificate, HTTPS", console.Warning, "expires in"},
		"signed by yourself":            {func(s *Survey) { s.HTTPS.Err, s.HTTPS.Untrusted = "unknown authority", true }, "certificate, HTTPS", console.Warning, "unknown authority"},
		"no Cilium":                     {func(s *Survey) { delete(s.APIs, APICilium); env(s, "NETWORK_POLICY", "cilium") }, "network policy", console.Problem, "no instance starts"},
		"no limit of processes":         {func(s *Survey) { s.ProcessLimits["b"] = -1 }, "process limits", console.Warning, "no limit of processes for pods on b"},
		"limits that are hidden":        {func(s *Survey) { s.ProcessLimits, s.Unreadable["processes"] = nil, "you may not" }, "process limits", console.Unknown, "you may not"},
		"no platform API that is ready": {func(s *Survey) { s.Platform.Ready = 0 }, "platform API", console.Problem, "no replica"},
		"one replica of it":             {func(s *Survey) { s.Platform.Ready = 1 }, "platform API", console.Warning, "1 of 2"},
		"no class":                      {func(s *Survey) { s.GatewayClass, s.Gateway.Status.Conditions = nil, nil }, "Gateway", console.Problem, "the class does not exist"},
		"routes near the limit of Cilium": {func(s *Survey) {
			s.GatewayClass.Spec.ControllerName = "io.cilium/gateway-controller"
			for n := range 1400 {
				i := bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(n)}}
				i.Status.Phase = bergv1.PhaseRunning
				i.Status.Services = []bergv1.ServiceEndpoint{{Hostname: "01920000-0000-7000-8000-000000000001.play.example.org"}}
				s.Instances = append(s.Instances, i)
			}
		}, "routes", console.Problem, "about 1500"},
		"not isolated":     {func(s *Survey) { s.Pods[0].Status.Conditions[0].Status = corev1.ConditionFalse }, "isolation test", console.Problem, ""},
		"not verified":     {func(s *Survey) { s.Pods = nil; env(s, "ISOLATION_CHECK", "off") }, "isolation test", console.Warning, "has not been verified"},
		"not verified yet": {func(s *Survey) { s.Pods = nil }, "isolation test", console.Unknown, "has not finished"},
		"not to be seen":   {func(s *Survey) { s.Pods, s.Deployment, s.Unreadable["operator"] = nil, nil, "you may not" }, "isolation test", console.Unknown, "you may not"},
		"nothing to see":   {func(s *Survey) { s.Pods, s.Deployment = nil, nil }, "isolation test", console.Unknown, "was not found"},
		"verified long ago": {func(s *Survey) {
			env(s, "ISOLATION_CHECK", "interval")
			s.Pods[0].Status.Conditions[0].LastProbeTime = metav1.NewTime(noon.Add(-24 * time.Hour))
		}, "isolation test", console.Warning, "24h0m0s ago"},
		"an image": {func(s *Survey) {
			s.InstancePods = []corev1.Pod{{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Image: "x:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "denied"}}}}}}}
		}, "image pulls", console.Problem, "x:1 (1 pods: denied)"},
		"no pull secret": {func(s *Survey) { s.PullSecret = Missing; env(s, "PULL_SECRET_NAME", "registry") }, "pull secret", console.Problem, "registry"},
		"full nodes":     {func(s *Survey) { s.PodsOnNodes["a"] = 105 }, "nodes", console.Warning, "105 of 110"},
		"no node ready":  {func(s *Survey) { s.Nodes[0].Spec.Unschedulable = true }, "nodes", console.Problem, "0 of 1"},
		"node ports":     {func(s *Survey) { s.NodePorts = 2700 }, "node ports", console.Warning, "2700"},
		"quota": {func(s *Survey) {
			q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "q"}}
			q.Status.Hard = corev1.ResourceList{"count/pods": resource.MustParse("10")}
			q.Status.Used = corev1.ResourceList{"count/pods": resource.MustParse("10")}
			s.Quotas = []corev1.ResourceQuota{q}
		}, "quotas", console.Warning, "10 of 10"},
		"an instance": {func(s *Survey) {
			s.Instances = []bergv1.ChallengeInstance{{Status: bergv1.ChallengeInstanceStatus{Phase: bergv1.PhaseFailed}}}
		}, "instances", console.Warning, "1 with a problem"},
		"instances that cannot start, that wait and that end": {func(s *Survey) {
			ended := bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}}
			ended.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionHealthy, Status: metav1.ConditionFalse}}
			s.Instances = []bergv1.ChallengeInstance{ended}
			for condition, reason := range map[string]string{
				bergv1.ConditionPodsReady: "ImagePullBackOff", bergv1.ConditionHealthy: "CrashLoopBackOff", bergv1.ConditionServicesCreated: bergv1.ReasonRefused,
				bergv1.ConditionAdmitted: bergv1.ReasonQueued, bergv1.ConditionNamespaceCreated: bergv1.ReasonOwnerBusy, bergv1.ConditionChallengeFound: bergv1.ReasonFrozen,
			} {
				i := bergv1.ChallengeInstance{Status: bergv1.ChallengeInstanceStatus{Phase: bergv1.PhasePending}}
				i.Status.Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionFalse, Reason: reason}}
				s.Instances = append(s.Instances, i)
			}
		}, "instances", console.Warning, "3 with a problem"},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthySurvey()
			tc.change(&s)
			for _, l := range Check(s) {
				if l.Check != tc.check || l.Level == console.OK {
					continue
				}
				if l.Level != tc.level || !strings.Contains(l.Text, tc.text) {
					t.Errorf("%s: %s, want %s with %q", l.Level, l.Text, tc.level, tc.text)
				}
				if l.Level != console.Unknown && l.Do == "" {
					t.Errorf("no action: %s", l.Text)
				}
				return
			}
			t.Errorf("check %q reports no problem", tc.check)
		})
	}
}

// TestAdviceNamesRolesThatGrantWhatIsMissing wants no role named that its reader may have already.
func TestAdviceNamesRolesThatGrantWhatIsMissing(t *testing.T) {
	for _, test := range []struct {
		missing []Right
		want    string
	}{
		{
			[]Right{{Verb: "patch", Resource: "challenges"}, {Verb: "get", Resource: "challenges"}, {Verb: "get", Resource: "challenges"}},
			"Ask the administrator for a binding to berg-operator-challenge-editor, berg-operator-challenge-viewer.",
		},
		{[]Right{{Verb: "list", Resource: "challengeinstancerecords"}}, "Ask the administrator for a binding to berg-operator-challengeinstancerecord-viewer."},
		{
			[]Right{{Verb: "list", Resource: "pods"}, {Verb: "get", Resource: "pods/log"}},
			"The roles for players and authors do not grant this: ask the administrator for the right to list pods, get pods/log in the namespaces of instances.",
		},
	} {
		s := healthySurvey()
		s.Rights = test.missing
		if got := rights(s)[0].Do; got != test.want {
			t.Errorf("%v: %q, want %q", test.missing, got, test.want)
		}
	}
}

func TestPreparedInstancesAreCountedApart(t *testing.T) {
	s := healthySurvey()
	players := instances(s)[0].Text
	s.Instances = append(s.Instances, bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{bergv1.LabelPrepared: "uid"}}})
	if got := instances(s)[0].Text; got != players+", and 1 prepared without a player" {
		t.Errorf("%q, want %q and the prepared one", got, players)
	}
}
