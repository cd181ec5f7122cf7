package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Level is how much a result of a health check endangers an event.
type Level string

// The levels. NotLookedAt is a result that says nothing: an event may be endangered.
const (
	Fine        Level = "ok"
	Concern     Level = "warning"
	Danger      Level = "problem"
	NotLookedAt Level = "unknown"
)

// Health is the result of one check of what endangers an event.
type Health struct {
	Check string
	Level Level
	// Text describes the result, Do the action.
	Text, Do string
}

// Certificate is the certificate of a listener, as a client of a player gets it.
type Certificate struct {
	Listener, Address string
	// Err says why there was no connection, or why browsers reject the certificate.
	Err string
	// Untrusted: there was a connection.
	Untrusted bool
	NotAfter  time.Time
	Issuer    string
}

// Facts are the observations of an event. A field that is nil was not looked at; Unread has the reason, by the name of the check.
type Facts struct {
	Now  time.Time
	Rows []*Row
	// Isolation is the operator's newest test of network policies, IsolationCheck its setting.
	Isolation      *corev1.PodCondition
	IsolationCheck string
	// Gateway is the Gateway of the settings, Listeners the listeners that Challenges use.
	Gateway   *Gateway
	Listeners []string
	NodePorts *Amount
	// ProcessLimits are the limits of processes of a pod by node; a negative one is none.
	ProcessLimits map[string]int64
	Certificates  []Certificate
	// Platform is whether the platform API is ready.
	Platform *Platform
	// Domain is "" if it is not known.
	Domain string
	Unread map[string]string
}

// Platform is the state of the platform API.
type Platform struct {
	Installed   bool
	Ready, Want int
}

// The names of the checks.
const (
	HealthIsolation   = "isolation test"
	HealthGateway     = "Gateway"
	HealthRoutes      = "routes"
	HealthNodePorts   = "node ports"
	HealthProcesses   = "process limits"
	HealthCertificate = "certificates"
	HealthPlatform    = "platform API"
	HealthDomain      = "domain"
)

const (
	// maxVerificationAge is the age from which a test of isolation is old: the operator tests every hour.
	maxVerificationAge = 3 * time.Hour
	// certificateMargin is how long a certificate should still be valid.
	certificateMargin = 14 * 24 * time.Hour
	// warnPercent is the used share of a limit from which there is a concern.
	warnPercent = 90
	// exampleDomain ends the names of the default CHALLENGE_DOMAIN.
	exampleDomain = "challenges.example.com"
)

// routeLimits are the numbers of routes that controllers are known to serve from one Gateway. Cilium keeps a Gateway in one
// object of at most 1.5 MB (cilium/cilium#39974).
var routeLimits = map[string]int{"io.cilium/gateway-controller": 1500}

// slowControllers serve new routes late. Traefik waits for a setting of its own, and writes about five statuses a second.
var slowControllers = map[string]string{
	"traefik.io/gateway-controller": "New routes are served some seconds late when many instances start: set --providers.providersThrottleDuration of Traefik to 100ms.",
}

// CheckHealth checks what endangers an event, the worst result first. doctor, status and the live page show the same list.
func CheckHealth(f Facts) []Health {
	all := []Health{f.isolation(), f.gateway(), f.routes(), f.nodePorts(), f.processes(), f.certificates(), f.platform(), f.domain()}
	order := []Level{Danger, Concern, NotLookedAt, Fine}
	slices.SortStableFunc(all, func(a, b Health) int { return cmp.Compare(slices.Index(order, a.Level), slices.Index(order, b.Level)) })
	return all
}

// unread is the result of a check whose facts are missing.
func (f Facts) unread(check, otherwise string) Health {
	return Health{check, NotLookedAt, cmp.Or(f.Unread[check], otherwise), "kubectl berg doctor looks at it, with the rights of an administrator."}
}

// isolation needs no right where an instance shows that its policies are not enforced.
func (f Facts) isolation() Health {
	const runbook = "docs/runbooks/BergIsolationNotEnforced.md"
	c := f.Isolation
	if c != nil && c.Status == corev1.ConditionFalse {
		return Health{HealthIsolation, Danger, c.Message, runbook}
	}
	exposed := 0
	for _, r := range f.Rows {
		if p := meta.FindStatusCondition(r.Conditions, bergv1.ConditionNetworkPolicyCreated); p != nil && p.Reason == bergv1.ReasonNotEnforced {
			exposed++
		}
	}
	const setInterval = "Set the operator's ISOLATION_CHECK to interval."
	switch {
	case exposed > 0 && c == nil:
		return Health{HealthIsolation, Danger, fmt.Sprintf("the cluster does not enforce network policies: players of %d instances reach other instances and the cluster", exposed), runbook}
	case c == nil && f.IsolationCheck == "off":
		return Health{HealthIsolation, Concern, "network policy enforcement has not been verified", setInterval}
	case c == nil:
		return f.unread(HealthIsolation, "the first test of network policies has not finished, or its result was not found")
	case c.Status != corev1.ConditionTrue:
		return Health{HealthIsolation, Concern, c.Message, "Fix what the message names; the operator then tests again."}
	}
	age := f.Now.Sub(c.LastProbeTime.Time).Round(time.Minute)
	if f.IsolationCheck != "startup" && age > maxVerificationAge {
		return Health{HealthIsolation, Concern, fmt.Sprintf("network policies were enforced when last tested, %s ago", age), setInterval}
	}
	return Health{HealthIsolation, Fine, fmt.Sprintf("network policies are enforced, tested %s ago", age), ""}
}

// gateway also believes the instances, which name what their Gateway lacks.
func (f Facts) gateway() Health {
	const do = "Install or repair the controller, or correct the listener: kubectl berg doctor"
	if f.Gateway == nil {
		for _, r := range f.Rows {
			if c := meta.FindStatusCondition(r.Conditions, bergv1.ConditionRoutesCreated); c != nil && c.Reason == bergv1.ReasonGatewayNotReady {
				return Health{HealthGateway, Danger, c.Message, do}
			}
		}
		if served := f.countRoutes(true); served > 0 {
			return Health{HealthGateway, Fine, fmt.Sprintf("it serves the addresses of %d instances, as their status says", served), ""}
		}
		return f.unread(HealthGateway, "the Gateway was not looked at")
	}
	level := Danger
	if len(f.Listeners) == 0 {
		level = Concern // no Challenge has a host name
	}
	if text := f.Gateway.Problem(); text != "" {
		return Health{HealthGateway, level, text, do}
	}
	for _, name := range f.Listeners {
		if text := f.Gateway.ListenerProblem(name); text != "" {
			return Health{HealthGateway, level, text, do}
		}
	}
	return Health{HealthGateway, Fine, fmt.Sprintf("%s works", f.Gateway), ""}
}

// countRoutes counts the addresses of instances that are host names, or the running instances with one.
func (f Facts) countRoutes(instances bool) (n int) {
	for _, r := range f.Rows {
		routed := 0
		for _, s := range r.Services {
			if id, _, _ := strings.Cut(s.Hostname, "."); len(id) == len(uuid.Nil.String()) && uuid.Validate(id) == nil {
				routed++
			}
		}
		if instances {
			routed = min(routed, 1)
			if r.State != Running {
				routed = 0
			}
		}
		n += routed
	}
	return n
}

func (f Facts) routes() Health {
	n := f.countRoutes(false)
	text := fmt.Sprintf("instances have %d", n)
	if f.Gateway == nil || f.Gateway.Class == nil {
		if n == 0 {
			return Health{HealthRoutes, Fine, text, ""}
		}
		return f.unread(HealthRoutes, text+"; the limit of the Gateway is not known")
	}
	controller := string(f.Gateway.Class.Spec.ControllerName)
	limit := routeLimits[controller]
	switch {
	case limit > 0 && n*100 >= limit*warnPercent:
		return Health{
			HealthRoutes, Danger, fmt.Sprintf("%s, and %s serves about %d: it stops taking changes beyond that, silently", text, controller, limit),
			"End instances, use another Gateway, or publicPort.",
		}
	case limit > 0:
		return Health{HealthRoutes, Fine, fmt.Sprintf("%s of about %d that %s serves", text, limit, controller), ""}
	case slowControllers[controller] != "" && n > 0:
		return Health{HealthRoutes, Fine, text + ". " + slowControllers[controller], ""}
	default:
		return Health{HealthRoutes, Fine, fmt.Sprintf("%s; no limit of %s is known", text, controller), ""}
	}
}

func (f Facts) nodePorts() Health {
	for _, r := range f.Rows {
		if r.Reason == bergv1.ReasonOutOfNodePorts {
			return Health{HealthNodePorts, Danger, "all node ports are in use: instances wait for one", reasons[r.Reason].Do}
		}
	}
	p := f.NodePorts
	if p == nil || p.Total == 0 {
		return f.unread(HealthNodePorts, "the range of node ports is not known")
	}
	text := fmt.Sprintf("%.0f of %.0f in use, if the range is the default", p.Used, p.Total)
	if p.Used*100 > p.Total*warnPercent {
		return Health{HealthNodePorts, Concern, text, "Use routes, or extend --service-node-port-range of the API server."}
	}
	return Health{HealthNodePorts, Fine, text, ""}
}

func (f Facts) processes() Health {
	if len(f.ProcessLimits) == 0 {
		return f.unread(HealthProcesses, "whether nodes limit the processes of a pod was not looked at")
	}
	var without []string
	lowest := int64(0)
	for _, name := range slices.Sorted(maps.Keys(f.ProcessLimits)) {
		limit := f.ProcessLimits[name]
		if limit <= 0 {
			without = append(without, name)
		} else if lowest == 0 || limit < lowest {
			lowest = limit
		}
	}
	if len(without) > 0 {
		return Health{
			HealthProcesses, Concern, fmt.Sprintf("no limit of processes for pods on %s: a fork bomb of a player stops the node", strings.Join(without[:min(len(without), 3)], ", ")),
			"Set podPidsLimit in the configuration of the kubelet, for example to 1024.",
		}
	}
	return Health{HealthProcesses, Fine, fmt.Sprintf("a pod has at most %d processes", lowest), ""}
}

func (f Facts) certificates() Health {
	if len(f.Certificates) == 0 {
		return f.unread(HealthCertificate, "the certificates of the Gateway were not looked at")
	}
	result := Health{HealthCertificate, Fine, "", ""}
	for _, c := range f.Certificates {
		left := c.NotAfter.Sub(f.Now)
		switch {
		case c.Err != "" && !c.Untrusted:
			return f.unread(HealthCertificate, fmt.Sprintf("listener %s: no connection to %s from here: %s", c.Listener, c.Address, c.Err))
		case left < 0:
			return Health{HealthCertificate, Danger, fmt.Sprintf("the certificate of listener %s has expired", c.Listener), "Renew it."}
		case c.Untrusted:
			result = Health{HealthCertificate, Concern, fmt.Sprintf("browsers reject the certificate of listener %s: %s", c.Listener, c.Err), "Install a certificate of a public authority. A self-signed one is enough for tests."}
		case left < certificateMargin:
			result = Health{HealthCertificate, Concern, fmt.Sprintf("the certificate of listener %s expires in %d days", c.Listener, int(left.Hours()/24)), "Renew it before the event."}
		case result.Text == "":
			result.Text = fmt.Sprintf("valid for %d days or more", int(left.Hours()/24))
		}
	}
	return result
}

func (f Facts) platform() Health {
	switch p := f.Platform; {
	case p == nil:
		return f.unread(HealthPlatform, "the platform API was not looked at")
	case !p.Installed:
		return Health{HealthPlatform, Fine, "not installed; CTFd, rCTF and the live page need it", ""}
	case p.Ready == 0:
		return Health{HealthPlatform, Danger, "no replica of berg-api is ready: platforms start no instance", "kubectl get pods -A -l app.kubernetes.io/name=berg-api"}
	case p.Ready < p.Want:
		return Health{HealthPlatform, Concern, fmt.Sprintf("%d of %d replicas of berg-api are ready", p.Ready, p.Want), "kubectl get pods -A -l app.kubernetes.io/name=berg-api"}
	default:
		return Health{HealthPlatform, Fine, fmt.Sprintf("%d of %d replicas are ready", p.Ready, p.Want), ""}
	}
}

// domain needs no right where instances have addresses.
func (f Facts) domain() Health {
	domain := f.Domain
	for _, r := range f.Rows {
		for _, s := range r.Services {
			if domain == "" && (s.Hostname == exampleDomain || strings.HasSuffix(s.Hostname, "."+exampleDomain)) {
				domain = exampleDomain
			}
		}
	}
	switch domain {
	case "":
		return f.unread(HealthDomain, "CHALLENGE_DOMAIN is not known")
	case exampleDomain:
		return Health{HealthDomain, Concern, "CHALLENGE_DOMAIN is " + domain + ", which is an example", "Set CHALLENGE_DOMAIN to your own domain, whose names resolve to the Gateway."}
	default:
		return Health{HealthDomain, Fine, domain, ""}
	}
}
