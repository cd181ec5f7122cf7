package doctor

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
	kitsettings "github.com/bergctf/berg-operator/internal/kit/settings"
)

// maxNodesRead is the number of nodes whose configuration is read.
const maxNodesRead = 10

// Facts returns the part of the survey from which view.CheckHealth says what endangers the event. A check whose reads failed is
// in Unread, with the reason.
func (s Survey) Facts() view.Facts {
	f := view.Facts{Now: s.Now, IsolationCheck: s.setting("ISOLATION_CHECK"), ProcessLimits: s.ProcessLimits, Platform: s.Platform, Unread: map[string]string{}}
	for n := range s.Instances {
		row := view.NewRow(&s.Instances[n])
		f.Rows = append(f.Rows, &row)
	}
	for check, reads := range map[string][]string{
		view.HealthIsolation: {"operator", "operator pods"}, view.HealthGateway: {"operator", "gateway"}, view.HealthRoutes: {"gateway", "class"}, view.HealthNodePorts: {"services"},
		view.HealthProcesses: {"nodes", "processes"}, view.HealthCertificate: {"operator", "gateway"}, view.HealthPlatform: {"platform"}, view.HealthDomain: {"operator"},
	} {
		for _, read := range reads {
			if message := s.Unreadable[read]; message != "" && f.Unread[check] == "" {
				f.Unread[check] = message
			}
		}
	}
	if s.Deployment == nil && f.Unread[view.HealthIsolation] == "" {
		f.Unread[view.HealthIsolation] = "the Deployment of the operator was not found"
	}
	f.Isolation = s.isolation()
	if s.GatewayRead {
		g := s.gatewayView()
		f.Gateway = &g
		http, tls := routed(s)
		if http {
			f.Listeners = append(f.Listeners, s.setting("CHALLENGE_HTTP_LISTENER_NAME"))
		}
		if tls {
			f.Listeners = append(f.Listeners, s.setting("CHALLENGE_TLS_LISTENER_NAME"))
		}
		if s.Gateway != nil && !hasTLS(s.Gateway) {
			f.Unread[view.HealthCertificate] = "no listener of the Gateway has a certificate"
		}
	}
	if s.Unreadable["services"] == "" {
		f.NodePorts = &view.Amount{Used: float64(s.NodePorts), Total: NodePortRange}
	}
	for _, c := range []struct {
		listener string
		seen     *TLS
	}{{s.setting("CHALLENGE_HTTP_LISTENER_NAME"), s.HTTPS}, {s.setting("CHALLENGE_TLS_LISTENER_NAME"), s.TLSListener}} {
		if t := c.seen; t != nil {
			f.Certificates = append(f.Certificates, view.Certificate{Listener: c.listener, Address: t.Address, Err: t.Err, Untrusted: t.Untrusted, NotAfter: t.NotAfter, Issuer: t.Issuer})
		}
	}
	if domain, known := s.Setting("CHALLENGE_DOMAIN"); known && s.Deployment != nil {
		f.Domain = domain
	}
	return f
}

// hasTLS reports whether a listener ends TLS itself, and so has a certificate that can be read.
func hasTLS(g *gatewayv1.Gateway) bool {
	for _, l := range g.Spec.Listeners {
		if l.Protocol == gatewayv1.HTTPSProtocolType || l.Protocol == gatewayv1.TLSProtocolType && (l.TLS == nil || l.TLS.Mode == nil || *l.TLS.Mode != gatewayv1.TLSModePassthrough) {
			return true
		}
	}
	return false
}

// isolation returns the newest test of network policies of all replicas of the operator.
func (s Survey) isolation() (newest *corev1.PodCondition) {
	for i := range s.Pods {
		for j := range s.Pods[i].Status.Conditions {
			c := &s.Pods[i].Status.Conditions[j]
			if c.Type == isolationCondition && (newest == nil || c.LastProbeTime.After(newest.LastProbeTime.Time)) {
				newest = c
			}
		}
	}
	return newest
}

// Dangers returns the results of the health checks.
func Dangers(f view.Facts) (all []Result) {
	for _, h := range view.CheckHealth(f) {
		all = append(all, Result{Check: h.Check, Level: console.Level(h.Level), Text: h.Text, Do: h.Do})
	}
	return oneLine(all)
}

// health has the health checks that no other check of doctor shows in more detail.
func health(s Survey) (results []Result) {
	for _, r := range Dangers(s.Facts()) {
		switch r.Check {
		case view.HealthGateway, view.HealthNodePorts, view.HealthDomain, view.HealthCertificate:
		default:
			results = append(results, r)
		}
	}
	return results
}

// platform finds the platform API by its label.
func (s *surveyor) platform(ctx context.Context) {
	var all appsv1.DeploymentList
	if !s.readable("platform", "the Deployment of the platform API", s.List(ctx, &all, client.MatchingLabels{"app.kubernetes.io/name": platformAPI})) {
		return
	}
	state := &view.Platform{}
	for _, d := range all.Items {
		want := int32(1)
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas
		}
		state.Installed = true
		state.Ready, state.Want = state.Ready+int(d.Status.ReadyReplicas), state.Want+int(want)
	}
	s.set(func() { s.Platform = state })
}

// platformAPI is the label of the pods of the platform API.
const platformAPI = "berg-api"

// programs reads from the pods of all programs with which settings one does not start, and the containers of the platform API and the gate.
func (s *surveyor) programs(ctx context.Context) {
	if s.Deployment == nil {
		return
	}
	selector, err := labels.Parse("app.kubernetes.io/name in (" + platformAPI + ", " + gateadmin.Name + ")")
	if err != nil {
		return
	}
	var pods corev1.PodList
	s.readable("programs", "the pods of the platform API and of the gate", s.List(ctx, &pods, client.InNamespace(s.Deployment.Namespace), client.MatchingLabelsSelector{Selector: selector}))
	s.set(func() {
		s.Refused = map[string]string{}
		for _, pod := range slices.Concat(s.Pods, pods.Items) {
			name := pod.Labels["app.kubernetes.io/name"]
			if text := refusedSettings(&pod); text != "" {
				s.Refused[name] = text
			}
			if len(pod.Spec.Containers) == 0 {
				continue
			}
			switch name {
			case platformAPI:
				s.API = &pod.Spec.Containers[0]
			case gateadmin.Name:
				s.Gate = &pod.Spec.Containers[0]
			}
		}
	})
}

// refusedSettings returns the settings with which a program ended itself, "" for one that works. It finds the text with which all
// programs begin such an error. A container that is ready has recovered.
func refusedSettings(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		for _, ended := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if ended == nil || c.Ready {
				continue
			}
			if _, text, found := strings.Cut(ended.Message, kitsettings.Invalid); found {
				return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
			}
		}
	}
	return ""
}

// processes reads the limits of processes from the configuration of kubelets. The user may not have the right.
func (s *surveyor) processes(ctx context.Context) {
	raw, err := s.Raw(corev1.SchemeGroupVersion)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, networkTimeout) // a node may not answer
	defer cancel()
	limits := map[string]int64{}
	for n := range s.Nodes[:min(len(s.Nodes), maxNodesRead)] {
		name := s.Nodes[n].Name
		data, err := raw.Get().Resource("nodes").Name(name).SubResource("proxy").Suffix("configz").DoRaw(ctx)
		if apierrors.IsForbidden(err) {
			s.readable("processes", "the configuration of nodes (get nodes/proxy)", err)
			return
		}
		var config struct {
			KubeletConfig struct {
				PodPidsLimit *int64 `json:"podPidsLimit"`
			} `json:"kubeletconfig"`
		}
		if err == nil && json.Unmarshal(data, &config) == nil && config.KubeletConfig.PodPidsLimit != nil {
			limits[name] = *config.KubeletConfig.PodPidsLimit
		}
	}
	s.set(func() {
		s.ProcessLimits = limits
		if len(limits) == 0 {
			s.Unreadable["processes"] = "no node showed its configuration"
		}
	})
}
