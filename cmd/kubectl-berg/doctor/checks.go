// Package doctor looks whether a cluster can run challenges: a survey reads what its user may read,
// and checks, which are pure, make a line of each thing: ok, or what to do.
package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// Level is how grave a line is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Problem Level = "problem"
	// Unknown is what could not be looked at.
	Unknown Level = "unknown"
)

// Line is the outcome of one check.
type Line struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"`
}

// Right is something that a command of the program needs, and whether the user has it.
type Right struct {
	Verb, Resource, Namespace string
	Allowed                   bool
	// For is which commands need it.
	For string
}

// Served is a served API group, empty if it is not.
type Served struct {
	// Versions are those of its group, Resources what there is in the version that is needed.
	Versions, Resources []string
	// Release is what the definitions say of themselves, as Gateway API's do.
	Release string
}

// TLS is what a client sees that connects to a listener.
type TLS struct {
	Address string
	// Err is why there was no connection, or why the certificate is not to be trusted.
	Err string
	// Distrusted says that there was a connection, and a certificate that browsers refuse.
	Distrusted bool
	NotAfter   time.Time
	Issuer     string
}

// Survey is all that was read. What is nil was not found; what could not be read stands in
// Unreadable under its name.
type Survey struct {
	Now time.Time
	// Skew is how far the API server's clock is ahead of this machine's.
	Skew      time.Duration
	SkewKnown bool
	Server    string
	Plugin    string
	APIs      map[string]Served
	Rights    []Right
	// Deployment is the operator's, Pods its pods.
	Deployment *appsv1.Deployment
	Pods       []corev1.Pod
	// Leader is who holds its lease, Renewed when it was renewed last, Lease for how long it
	// counts.
	Leader    string
	Renewed   time.Time
	LeaseTime time.Duration
	Gateway   *gatewayv1.Gateway
	// HTTPS and TLSListener are what answers there; nil where it was not tried.
	HTTPS, TLSListener *TLS
	// Names are the addresses of names that were looked up, NameErrors why they were not found.
	Names      map[string][]string
	NameErrors map[string]string
	NodeIPs    []string
	Nodes      []corev1.Node
	NodePorts  int
	// PodsOnNodes are how many pods there are on each node, nil where they were not read.
	PodsOnNodes map[string]int
	Challenges  []bergv1.Challenge
	Instances   []bergv1.ChallengeInstance
	// InstancePods are those of all instances.
	InstancePods []corev1.Pod
	Quotas       []corev1.ResourceQuota
	PullSecret   Presence
	// Sources are the settings that the operator takes from whole objects (envFrom), and Unread
	// those objects that could not be read.
	Sources    map[string]string
	Unread     []string
	Unreadable map[string]string
}

// Presence is whether something is there.
type Presence string

// The presences.
const (
	NotAsked Presence = ""
	There    Presence = "there"
	Missing  Presence = "missing"
	Hidden   Presence = "hidden"
)

// Defaults are those of the operator's settings that the checks look at. A test compares them
// with the operator's own.
var Defaults = map[string]string{
	"CHALLENGE_NAMESPACE": "berg", "CHALLENGE_DOMAIN": "challenges.example.com",
	"CHALLENGE_HTTP_PORT": "80", "CHALLENGE_HTTP_TLS": "true", "CHALLENGE_TLS_PORT": "443",
	"GATEWAY_NAME": "berg-gateway", "GATEWAY_NAMESPACE": "berg",
	"CHALLENGE_HTTP_LISTENER_NAME": "http", "CHALLENGE_TLS_LISTENER_NAME": "tls",
	"NETWORK_POLICY": "auto", "ISOLATION_CHECK": "off", "PULL_SECRET_NAME": "", "ENABLED_APIS": "",
	"CHALLENGE_CPU_REQUEST": "100m", "CHALLENGE_CPU_LIMIT": "1000m",
	"CHALLENGE_MEMORY_REQUEST": "128Mi", "CHALLENGE_MEMORY_LIMIT": "512Mi",
	"CHALLENGE_EPHEMERAL_STORAGE_REQUEST": "64Mi", "CHALLENGE_INSTANCE_TIMEOUT": "2h",
	"CHALLENGE_ADDITIONAL_HEADLESS_SERVICE": "false", "CHALLENGE_MAX_INSTANCES": "0", "RECORD_NAMESPACE": "berg-records",
}

// Setting returns what the operator's Deployment sets, or the default; known is false where the
// value stands in another object that was not read.
func (s Survey) Setting(name string) (value string, known bool) {
	if c := s.container(); c != nil {
		// Of one name the last counts.
		for _, e := range slices.Backward(c.Env) {
			switch {
			case e.Name != name:
			case e.ValueFrom != nil:
				return Defaults[name], false
			default:
				return cmp.Or(e.Value, Defaults[name]), true
			}
		}
	}
	return cmp.Or(s.Sources[name], Defaults[name]), len(s.Unread) == 0
}

// container is the operator's, nil where it was not found.
func (s Survey) container() *corev1.Container {
	if s.Deployment == nil || len(s.Deployment.Spec.Template.Spec.Containers) == 0 {
		return nil
	}
	return &s.Deployment.Spec.Template.Spec.Containers[0]
}

// setting is Setting where the default does as well as nothing: settings says which are guessed.
func (s Survey) setting(name string) string {
	value, _ := s.Setting(name)
	return value
}

// settings tells of which settings the values stand elsewhere.
func settings(s Survey) []Line {
	var guessed []string
	if c := s.container(); c != nil {
		for _, e := range c.Env {
			if _, looked := Defaults[e.Name]; looked && e.ValueFrom != nil {
				guessed = append(guessed, e.Name)
			}
		}
	}
	var texts []string
	if len(guessed) > 0 {
		texts = append(texts, fmt.Sprintf("the values of %s stand in other objects", strings.Join(guessed, ", ")))
	}
	if len(s.Unread) > 0 {
		texts = append(texts, fmt.Sprintf("the operator takes settings from %s, which you may not read", strings.Join(s.Unread, ", ")))
	}
	if len(texts) == 0 {
		return nil
	}
	return one("settings", Unknown, strings.Join(texts, "; ")+": their defaults are taken below", "An administrator can run kubectl berg doctor, or let you read it.")
}

// Check makes the lines, in the order in which things depend on each other.
func Check(s Survey) []Line {
	var lines []Line
	for _, check := range []func(Survey) []Line{
		server, clockOf, definitions, rights, operator, versions, settings, gatewayAPI, gateway, names, certificates, policy, isolation, images, room, quotas, instances,
	} {
		lines = append(lines, check(s)...)
	}
	for i := range lines {
		lines[i].Text, lines[i].Do = console.OneLine(lines[i].Text), console.OneLine(lines[i].Do)
	}
	return lines
}

func one(check string, level Level, text, do string) []Line {
	return []Line{{Check: check, Level: level, Text: text, Do: do}}
}

// hidden says that something could not be read.
func (s Survey) hidden(check, what string) ([]Line, bool) {
	if why := s.Unreadable[what]; why != "" {
		return one(check, Unknown, why, "An administrator can run kubectl berg doctor, or let you read it."), true
	}
	return nil, false
}

// Oldest Kubernetes that the operator is made for.
var oldest = semver.MustParse("1.33.0")

func server(s Survey) []Line {
	v, err := semver.ParseTolerant(s.Server)
	switch {
	case err != nil:
		return one("Kubernetes", Unknown, fmt.Sprintf("version %q is not understood", s.Server), "")
	case v.LT(oldest):
		return one("Kubernetes", Problem, fmt.Sprintf("%s is older than 1.33", s.Server), "Upgrade the cluster to 1.33 or later.")
	default:
		return one("Kubernetes", OK, s.Server, "")
	}
}

const (
	// warnSkew and wrongSkew are from when clocks differ too much: certificates and tokens.
	warnSkew  = 5 * time.Second
	wrongSkew = time.Minute
)

func clockOf(s Survey) []Line {
	if !s.SkewKnown {
		return one("clock", Unknown, "the API server does not tell its time", "")
	}
	text := fmt.Sprintf("this machine is %s behind the API server", console.Duration(s.Skew))
	if s.Skew < 0 {
		text = fmt.Sprintf("this machine is %s ahead of the API server", console.Duration(-s.Skew))
	}
	switch {
	case s.Skew.Abs() >= wrongSkew:
		return one("clock", Problem, text, "Set the clock of whichever is wrong (NTP). What is left of an instance's time is counted by the cluster's.")
	case s.Skew.Abs() >= warnSkew:
		return one("clock", Warning, text, "Set the clock of whichever is wrong (NTP).")
	default:
		return one("clock", OK, "this machine and the API server agree to some seconds", "")
	}
}

// The APIs that are looked for.
const (
	APIBerg    = "berg.norelect.ch/v1"
	APIGateway = "gateway.networking.k8s.io/v1"
	APICilium  = "cilium.io/v2"
)

func definitions(s Survey) []Line {
	have := s.APIs[APIBerg].Resources
	if !slices.Contains(have, "challenges") || !slices.Contains(have, "challengeinstances") {
		return one("definitions", Problem, APIBerg+" is not served: the operator is not installed, or its definitions are gone",
			"Install the operator: kubectl apply --server-side -k config/default; or choose another cluster with --context.")
	}
	return one("definitions", OK, "Challenge and ChallengeInstance are served", "")
}

func rights(s Survey) []Line {
	if why := s.Unreadable["rights"]; why != "" {
		return one("your rights", Unknown, why, "")
	}
	var missing []string
	for _, r := range s.Rights {
		if !r.Allowed {
			missing = append(missing, fmt.Sprintf("%s %s (%s)", r.Verb, r.Resource, r.For))
		}
	}
	if len(missing) == 0 {
		return one("your rights", OK, "all that the commands need", "")
	}
	return one("your rights", Warning, "you may not: "+strings.Join(missing, "; "),
		"Ask for a binding to berg-operator-challengeinstance-editor and berg-operator-challenge-viewer; commands that need the rest say so.")
}

func operator(s Survey) []Line {
	if lines, hidden := s.hidden("operator", "operator"); hidden {
		return lines
	}
	d := s.Deployment
	if d == nil {
		return one("operator", Problem, "no Deployment of the operator is found", "Install it, or say where it is: --operator-namespace.")
	}
	where := "kubectl -n " + d.Namespace
	var want int32 = 1
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	switch ready := d.Status.ReadyReplicas; {
	case want == 0:
		return one("operator", Problem, "it is scaled to 0: nothing starts and nothing ends", fmt.Sprintf("%s scale deployment/%s --replicas=2", where, d.Name))
	case ready == 0:
		return one("operator", Problem, "no replica is ready: nothing starts and nothing ends", where+" describe pods -l control-plane=controller-manager says why.")
	case ready < want:
		return append(one("operator", Warning, fmt.Sprintf("%d of %d replicas are ready", ready, want), where+" describe pods -l control-plane=controller-manager says why."), lease(s)...)
	case d.Status.UpdatedReplicas < want:
		return append(one("operator", Warning, "new settings or a new version do not come up; the old ones work on", where+" logs -l control-plane=controller-manager --tail=20 names a wrong setting."), lease(s)...)
	default:
		return append(one("operator", OK, fmt.Sprintf("%d of %d replicas are ready in %s", ready, want, d.Namespace), ""), lease(s)...)
	}
}

func lease(s Survey) []Line {
	if s.setting("LEADER_ELECT") == "false" {
		return nil
	}
	if lines, hidden := s.hidden("leader", "lease"); hidden {
		return lines
	}
	silent := s.Now.Sub(s.Renewed)
	switch {
	case s.Leader == "":
		return one("leader", Problem, "no replica leads: nothing starts and nothing ends", "See the operator's log; docs/runbooks/BergOperatorNoLeader.md.")
	case silent > s.LeaseTime+warnSkew:
		return one("leader", Problem, fmt.Sprintf("the one that leads has been silent for %s", console.Duration(silent)), "See the operator's log; docs/runbooks/BergOperatorNoLeader.md.")
	default:
		name, _, _ := strings.Cut(s.Leader, "_")
		return one("leader", OK, name, "")
	}
}

func versions(s Survey) []Line {
	image := ""
	if c := s.container(); c != nil {
		image = c.Image
	}
	_, tag, tagged := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !tagged {
		return nil
	}
	tag, _, _ = strings.Cut(tag, "@")
	its, errOperator := semver.ParseTolerant(tag)
	own, errPlugin := semver.ParseTolerant(s.Plugin)
	switch {
	case errOperator != nil || errPlugin != nil:
		return one("versions", Unknown, fmt.Sprintf("operator %s, this plugin %s", tag, s.Plugin), "")
	case its.Major != own.Major || its.Major == 0 && its.Minor != own.Minor:
		return one("versions", Warning, fmt.Sprintf("operator %s, this plugin %s", its, own), "Take the plugin of the operator's version.")
	default:
		return one("versions", OK, fmt.Sprintf("operator %s, this plugin %s", its, own), "")
	}
}

// routed reports whether some Challenge needs the Gateway, and which of its listeners.
func routed(s Survey) (web, raw bool) {
	for _, c := range s.Challenges {
		for _, container := range c.Spec.Containers {
			for _, p := range container.Ports {
				switch p.EffectiveType() {
				case bergv1.InternalPort, bergv1.PublicPort:
				case bergv1.PublicHTTPRoute:
					web = true
				case bergv1.PublicTLSRoute:
					raw = true
				}
			}
		}
	}
	return web, raw
}

// needed is the level of what only some Challenges need.
func needed(by bool) Level {
	if by {
		return Problem
	}
	return Warning
}

func gatewayAPI(s Survey) []Line {
	api := s.APIs[APIGateway]
	web, raw := routed(s)
	var missing []string
	level := Warning
	for resource, by := range map[string]bool{"httproutes": web, "tlsroutes": raw} {
		if !slices.Contains(api.Resources, resource) {
			missing = append(missing, resource)
			if by {
				level = Problem
			}
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		return one("Gateway API", level, fmt.Sprintf("%s %s are not served", APIGateway, strings.Join(missing, " and ")),
			"Install the Gateway API, 1.6 or later with TLSRoute in v1. Challenges with internal and public ports only run without it.")
	}
	release := ""
	if api.Release != "" {
		release = " (" + api.Release + ")"
	}
	return one("Gateway API", OK, "HTTPRoute and TLSRoute are served"+release, "")
}

func gateway(s Survey) []Line {
	if len(s.APIs[APIGateway].Resources) == 0 {
		return nil
	}
	if lines, hidden := s.hidden("Gateway", "gateway"); hidden {
		return lines
	}
	name := s.setting("GATEWAY_NAMESPACE") + "/" + s.setting("GATEWAY_NAME")
	web, raw := routed(s)
	g := s.Gateway
	if g == nil {
		return one("Gateway", needed(web || raw), fmt.Sprintf("there is no Gateway %s", name),
			"Create it, as config/berg/samples/prerequisites does, or set GATEWAY_NAME and GATEWAY_NAMESPACE.")
	}
	if c := meta.FindStatusCondition(g.Status.Conditions, string(gatewayv1.GatewayConditionProgrammed)); c == nil || c.Status != metav1.ConditionTrue {
		text := "no controller has taken it up"
		if c != nil && c.Reason != "Pending" {
			text = c.Message
		}
		return one("Gateway", needed(web || raw), fmt.Sprintf("%s does not work: %s", name, text),
			fmt.Sprintf("Is the controller of its class %s installed? kubectl describe gateway %s -n %s", g.Spec.GatewayClassName, g.Name, g.Namespace))
	}
	lines := one("Gateway", OK, fmt.Sprintf("%s works, at %s", name, strings.Join(addresses(g), ", ")), "")
	http := s.setting("CHALLENGE_HTTP_TLS") != "false"
	lines = append(lines, listener(s, "CHALLENGE_HTTP_LISTENER_NAME", "CHALLENGE_HTTP_PORT", web, protocolOf(http))...)
	return append(lines, listener(s, "CHALLENGE_TLS_LISTENER_NAME", "CHALLENGE_TLS_PORT", raw, gatewayv1.TLSProtocolType)...)
}

func protocolOf(tls bool) gatewayv1.ProtocolType {
	if tls {
		return gatewayv1.HTTPSProtocolType
	}
	return gatewayv1.HTTPProtocolType
}

func addresses(g *gatewayv1.Gateway) (all []string) {
	for _, a := range g.Status.Addresses {
		all = append(all, a.Value)
	}
	if len(all) == 0 {
		return []string{"an address that it does not tell"}
	}
	return all
}

func listener(s Survey, nameSetting, portSetting string, used bool, protocol gatewayv1.ProtocolType) []Line {
	name := s.setting(nameSetting)
	check := "listener " + name
	level := needed(used)
	for _, l := range s.Gateway.Spec.Listeners {
		if string(l.Name) != name {
			continue
		}
		domain := "*." + s.setting("CHALLENGE_DOMAIN")
		switch {
		case l.Protocol != protocol:
			return one(check, level, fmt.Sprintf("its protocol is %s, and the settings say %s", l.Protocol, protocol), "Change the listener, or "+nameSetting+" and CHALLENGE_HTTP_TLS.")
		case l.Hostname != nil && !covers(string(*l.Hostname), s.setting("CHALLENGE_DOMAIN")):
			return one(check, level, fmt.Sprintf("its hostname is %s, and instances are at %s", *l.Hostname, domain), "Set hostname of the listener, or CHALLENGE_DOMAIN.")
		}
		if why := shutOut(l.AllowedRoutes); why != "" {
			return one(check, level, why+", and each instance has a namespace of its own: its routes are refused",
				fmt.Sprintf("Set allowedRoutes.namespaces of the listener: from: Selector, with matchLabels %s: %s, as in config/berg/samples/prerequisites/gateway.yaml.", bergv1.LabelManagedBy, bergv1.ManagedBy))
		}
		for _, status := range s.Gateway.Status.Listeners {
			if status.Name != l.Name {
				continue
			}
			for _, kind := range []gatewayv1.ListenerConditionType{gatewayv1.ListenerConditionResolvedRefs, gatewayv1.ListenerConditionProgrammed, gatewayv1.ListenerConditionAccepted} {
				if c := meta.FindStatusCondition(status.Conditions, string(kind)); c != nil && c.Status == metav1.ConditionFalse {
					return one(check, level, fmt.Sprintf("%s: %s", c.Reason, c.Message), "Usually its certificate: the Secret in certificateRefs must exist next to the Gateway.")
				}
			}
		}
		if told := s.setting(portSetting); strconv.Itoa(int(l.Port)) != told {
			return one(check, Warning, fmt.Sprintf("it is at port %d, and players are told %s", l.Port, told),
				fmt.Sprintf("Set %s=%d, unless a load balancer before it maps the ports.", portSetting, l.Port))
		}
		return one(check, OK, fmt.Sprintf("%s at port %d for %s", l.Protocol, l.Port, domain), "")
	}
	return one(check, level, "the Gateway has no listener of that name", "Add it, or set "+nameSetting+".")
}

// covers reports whether a listener's hostname takes all names right below a domain. A wildcard
// stands for one label or several, as the Gateway API says, and an empty one for every name.
func covers(hostname, domain string) bool {
	if hostname == "" {
		return true
	}
	suffix, wild := strings.CutPrefix(strings.ToLower(hostname), "*")
	return wild && strings.HasSuffix("."+strings.ToLower(domain), suffix)
}

// shutOut is why a listener takes no routes from the namespaces of instances, "" if it does.
func shutOut(allowed *gatewayv1.AllowedRoutes) string {
	from := gatewayv1.NamespacesFromSame
	if allowed != nil && allowed.Namespaces != nil && allowed.Namespaces.From != nil {
		from = *allowed.Namespaces.From
	}
	switch from {
	case gatewayv1.NamespacesFromAll:
		return ""
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(allowed.Namespaces.Selector)
		switch {
		case err != nil:
			return fmt.Sprintf("its selector of namespaces cannot be understood (%v)", err)
		case selector.Matches(labels.Set(inEveryNamespace)):
			return ""
		default:
			return fmt.Sprintf("it takes routes from namespaces with %s", cmp.Or(selector.String(), "no labels that there are"))
		}
	default:
		return fmt.Sprintf("it takes routes from %s namespace only", map[bool]string{true: "its own", false: "no"}[from == gatewayv1.NamespacesFromSame])
	}
}

// inEveryNamespace are the labels that the namespaces of all instances have.
var inEveryNamespace = map[string]string{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentNamespace}

// ProbeName is what is looked up below the domain: a wildcard must answer.
const ProbeName = "kubectl-berg-doctor"

func names(s Survey) []Line {
	domain, known := s.Setting("CHALLENGE_DOMAIN")
	web, raw := routed(s)
	if !known || s.Names == nil {
		return nil
	}
	if domain == Defaults["CHALLENGE_DOMAIN"] {
		return one("DNS name", Warning, "CHALLENGE_DOMAIN is "+domain+", which is nobody's", "Set CHALLENGE_DOMAIN to a domain of yours whose names lead to the Gateway.")
	}
	name := ProbeName + "." + domain
	found := s.Names[name]
	if len(found) == 0 {
		return one("DNS name", needed(web || raw), fmt.Sprintf("*.%s does not resolve from here: %s", domain, s.NameErrors[name]),
			fmt.Sprintf("Let *.%s lead to the Gateway, and %s to the nodes.", domain, domain))
	}
	if s.Gateway != nil {
		var gates []string
		for _, a := range s.Gateway.Status.Addresses {
			if _, err := netip.ParseAddr(a.Value); err == nil {
				gates = append(gates, a.Value)
			}
		}
		if len(gates) > 0 && !slices.ContainsFunc(found, func(a string) bool { return slices.Contains(gates, a) }) {
			return one("DNS name", Warning, fmt.Sprintf("*.%s leads to %s, and the Gateway is at %s", domain, strings.Join(found, ", "), strings.Join(gates, ", ")),
				"Change the DNS record, unless a load balancer stands between them.")
		}
	}
	return one("DNS name", OK, fmt.Sprintf("*.%s leads to %s", domain, strings.Join(found, ", ")), "")
}

// soon is how long a certificate should be valid at least.
const soon = 14 * 24 * time.Hour

func certificates(s Survey) []Line {
	var lines []Line
	for _, c := range []struct {
		check string
		seen  *TLS
	}{{"certificate, HTTPS", s.HTTPS}, {"certificate, TLS", s.TLSListener}} {
		t := c.seen
		if t == nil {
			continue
		}
		switch left := t.NotAfter.Sub(s.Now); {
		case t.Err != "" && !t.Distrusted:
			lines = append(lines, one(c.check, Warning, fmt.Sprintf("no connection to %s from here: %s", t.Address, t.Err), "Do players get there? A firewall, or DNS.")...)
		case t.Distrusted:
			lines = append(lines, one(c.check, Warning, fmt.Sprintf("browsers refuse it: %s", t.Err), "Bring a certificate of a public authority for *."+s.setting("CHALLENGE_DOMAIN")+"; one that you sign yourself does for a try.")...)
		case left < 0:
			lines = append(lines, one(c.check, Problem, "it has expired", "Renew it.")...)
		case left < soon:
			lines = append(lines, one(c.check, Warning, "it expires in "+console.Duration(left), "Renew it before the event.")...)
		default:
			lines = append(lines, one(c.check, OK, fmt.Sprintf("of %s, valid for %s", t.Issuer, console.Duration(left)), "")...)
		}
	}
	return lines
}

func policy(s Survey) []Line {
	kind, known := s.Setting("NETWORK_POLICY")
	if !known || s.Deployment == nil {
		return nil
	}
	cilium := slices.Contains(s.APIs[APICilium].Resources, "ciliumnetworkpolicies")
	switch {
	case (kind == "cilium" || kind == "both") && !cilium:
		return one("network policy", Problem, "NETWORK_POLICY="+kind+", and the cluster has no CiliumNetworkPolicy: no instance starts",
			"Install Cilium, or set NETWORK_POLICY=kubernetes if another plugin enforces policies.")
	case kind == "kubernetes" && cilium:
		return one("network policy", Warning, "NETWORK_POLICY=kubernetes on a cluster with Cilium", "NETWORK_POLICY=auto takes Cilium's, which isolates more: docs/berg/isolation.md.")
	case kind == "auto" && cilium:
		return one("network policy", OK, "Cilium's, as NETWORK_POLICY=auto chooses here", "")
	case kind == "auto":
		return one("network policy", OK, "the standard one, as NETWORK_POLICY=auto chooses here: the network plugin must enforce it", "")
	default:
		return one("network policy", OK, "NETWORK_POLICY="+kind, "")
	}
}

// isolationCondition is what the operator writes on its own pod.
const isolationCondition corev1.PodConditionType = "berg.norelect.ch/IsolationVerified"

// stale is from when an answer about isolation is old: the operator asks every hour.
const staleAfter = 3 * time.Hour

func isolation(s Survey) []Line {
	if lines, hidden := s.hidden("isolation, by packets", "operator pods"); hidden {
		return lines
	}
	var newest *corev1.PodCondition
	for i := range s.Pods {
		for j := range s.Pods[i].Status.Conditions {
			c := &s.Pods[i].Status.Conditions[j]
			if c.Type == isolationCondition && (newest == nil || c.LastProbeTime.After(newest.LastProbeTime.Time)) {
				newest = c
			}
		}
	}
	namespace := "berg-operator-system"
	if s.Deployment != nil {
		namespace = s.Deployment.Namespace
	}
	set := fmt.Sprintf("kubectl -n %s set env deployment/berg-operator-controller-manager ISOLATION_CHECK=interval; then ask again in a minute.", namespace)
	switch {
	case newest == nil && s.setting("ISOLATION_CHECK") != "off":
		return one("isolation, by packets", Unknown, "the check has not come to an end yet", "Ask again in a minute.")
	case newest == nil:
		return one("isolation, by packets", Warning, "nobody has tried whether the cluster enforces network policies", set)
	case newest.Status == corev1.ConditionFalse:
		return one("isolation, by packets", Problem, newest.Message, "docs/runbooks/BergIsolationNotEnforced.md")
	case newest.Status == corev1.ConditionTrue && s.Now.Sub(newest.LastProbeTime.Time) > staleAfter:
		return one("isolation, by packets", Warning, fmt.Sprintf("enforced when it was tried %s ago", console.Duration(s.Now.Sub(newest.LastProbeTime.Time))), set)
	case newest.Status == corev1.ConditionTrue:
		return one("isolation, by packets", OK, fmt.Sprintf("enforced, tried %s ago", console.Duration(s.Now.Sub(newest.LastProbeTime.Time))), "")
	default:
		return one("isolation, by packets", Warning, newest.Message, "The message says why it could not be tried.")
	}
}

func images(s Survey) []Line {
	if lines, hidden := s.hidden("image pulls", "pods"); hidden {
		return lines
	}
	failing := map[string]int{}
	why := map[string]string{}
	for _, p := range s.InstancePods {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}, w.Reason) {
				failing[c.Image]++
				why[c.Image] = w.Message
			}
		}
	}
	var lines []Line
	name := s.setting("PULL_SECRET_NAME")
	switch s.PullSecret {
	case Missing:
		lines = one("pull secret", Problem, "PULL_SECRET_NAME="+name+", and there is no such Secret next to the operator", "Create it, of type kubernetes.io/dockerconfigjson.")
	case There:
		lines = one("pull secret", OK, name, "")
	case Hidden:
		lines = one("pull secret", Unknown, "you may not see whether "+name+" is there", "")
	case NotAsked:
	}
	var shown []string
	for image, n := range failing {
		shown = append(shown, fmt.Sprintf("%s (%d pods: %s)", image, n, why[image]))
	}
	slices.Sort(shown)
	pulled, missing := prepulled(s.Challenges)
	switch {
	case len(shown) > 0:
		lines = append(lines, one("image pulls", Problem, strings.Join(shown, "; "), "kubectl berg why --all says what to do about each.")...)
	case len(s.InstancePods) > 0:
		lines = append(lines, one("image pulls", OK, fmt.Sprintf("no pod of %d waits in vain for its image", len(s.InstancePods)), "")...)
	case len(missing) == 0 && pulled > 0 && pulled == len(s.Challenges):
		lines = append(lines, one("image pulls", OK, fmt.Sprintf("the images of %d Challenges were pulled on every node", pulled), "")...)
	case len(missing) == 0:
		lines = append(lines, one("image pulls", Unknown, "not known yet: no instance has a pod that pulled an image", "kubectl berg try CHALLENGE --once pulls those of one.")...)
	}
	if len(missing) > 0 {
		lines = append(lines, one("images before the event", Problem, strings.Join(missing, "; "), "Push the image, or let the cluster pull it, as the message says: docs/berg/images.md.")...)
	}
	return lines
}

// prepulled tells of how many Challenges all images are on every node, and of which they could not
// be brought there. One of which they are on their way, or not to be pulled yet, is neither.
func prepulled(all []bergv1.Challenge) (pulled int, missing []string) {
	for _, challenge := range all {
		c := meta.FindStatusCondition(challenge.Status.Conditions, bergv1.ChallengeConditionImagesReady)
		switch {
		case c == nil:
		case c.Status == metav1.ConditionTrue:
			pulled++
		case c.Reason == bergv1.ImagesPullFailed || c.Reason == bergv1.ImagesNoNode:
			missing = append(missing, fmt.Sprintf("Challenge %s/%s: %s", challenge.Namespace, challenge.Name, c.Message))
		}
	}
	return pulled, missing
}

const (
	// nodePortRange is what a cluster has by default.
	nodePortRange = 2768
	// nearlyFull is the share from which there is a warning.
	nearlyFull = 0.9
)

func room(s Survey) []Line {
	var lines []Line
	if hiddenLines, hidden := s.hidden("nodes", "nodes"); hidden {
		lines = append(lines, hiddenLines...)
	} else if len(s.Nodes) == 0 {
		lines = append(lines, one("nodes", Problem, "the cluster has no node", "Add one.")...)
	} else {
		ready, pods, used := 0, int64(0), 0
		for _, n := range s.Nodes {
			if !nodeReady(n) || n.Spec.Unschedulable {
				continue
			}
			ready++
			pods += n.Status.Allocatable.Pods().Value()
			used += s.PodsOnNodes[n.Name]
		}
		text := fmt.Sprintf("%d of %d ready", ready, len(s.Nodes))
		if s.PodsOnNodes != nil {
			text += fmt.Sprintf(", %d of %d pods", used, pods)
		}
		switch {
		case ready == 0:
			lines = append(lines, one("nodes", Problem, text, "kubectl describe nodes says why.")...)
		case s.PodsOnNodes != nil && float64(used) > nearlyFull*float64(pods):
			lines = append(lines, one("nodes", Warning, text, "Add nodes: kubectl berg plan tells how many an event needs.")...)
		case ready < len(s.Nodes):
			lines = append(lines, one("nodes", Warning, text, "kubectl get nodes")...)
		default:
			lines = append(lines, one("nodes", OK, text, "")...)
		}
	}
	if why := s.Unreadable["services"]; why != "" {
		return append(lines, one("node ports", Unknown, why, "")...)
	}
	text := fmt.Sprintf("%d of %d in use, unless the range was changed", s.NodePorts, nodePortRange)
	if float64(s.NodePorts) > nearlyFull*nodePortRange {
		return append(lines, one("node ports", Warning, text, "Prefer routes, or widen --service-node-port-range of the API server.")...)
	}
	return append(lines, one("node ports", OK, text, "")...)
}

func nodeReady(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func quotas(s Survey) []Line {
	if lines, hidden := s.hidden("quotas", "quotas"); hidden {
		return lines
	}
	var full []string
	for _, q := range s.Quotas {
		for name, hard := range q.Status.Hard {
			used := q.Status.Used[name]
			if hard.IsZero() || used.AsApproximateFloat64() >= nearlyFull*hard.AsApproximateFloat64() {
				full = append(full, fmt.Sprintf("%s/%s: %s of %s %s", q.Namespace, q.Name, used.String(), hard.String(), name))
			}
		}
	}
	slices.Sort(full)
	if len(full) > 0 {
		return one("quotas", Warning, strings.Join(full, "; "), "Raise them: what they refuse is tried again by itself.")
	}
	return one("quotas", OK, fmt.Sprintf("none of %d that concern instances is nearly used up", len(s.Quotas)), "")
}

func instances(s Survey) []Line {
	if lines, hidden := s.hidden("instances", "instances"); hidden {
		return lines
	}
	bad, running := 0, 0
	for i := range s.Instances {
		switch {
		case s.Instances[i].Status.Phase == bergv1.PhaseFailed, meta.IsStatusConditionFalse(s.Instances[i].Status.Conditions, bergv1.ConditionHealthy):
			bad++
		case s.Instances[i].Status.Phase == bergv1.PhaseRunning:
			running++
		}
	}
	text := fmt.Sprintf("%d, %d of them running and well", len(s.Instances), running)
	if bad > 0 {
		return one("instances", Warning, fmt.Sprintf("%s, %d with a problem", text, bad), "kubectl berg why --all -A")
	}
	return one("instances", OK, text, "")
}

// Worst is the gravest level of lines.
func Worst(lines []Line) Level {
	worst := OK
	for _, l := range lines {
		switch {
		case l.Level == Problem:
			return Problem
		case l.Level == Warning, l.Level == Unknown && worst == OK:
			worst = l.Level
		}
	}
	return worst
}
