package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
)

// Options say where to look.
type Options struct {
	// OperatorNamespace is the operator's, "" to look in all.
	OperatorNamespace string
	// Namespace is where the user's instances are.
	Namespace string
	Plugin    string
	// Offline leaves out what asks anybody but the API server: DNS and the Gateway's port.
	Offline bool
}

// networkTimeout is how long a name or a connection may take.
const networkTimeout = 5 * time.Second

// leaseName is that of the operator's election.
const leaseName = "berg-operator.berg.norelect.ch"

// wanted are the rights that the commands need.
var wanted = []struct{ group, resource, subresource, verb, needs string }{
	{"berg.norelect.ch", "challengeinstances", "", "list", "all commands"},
	{"berg.norelect.ch", "challengeinstances", "", "watch", "try, connect, list -w, rollout, end --wait"},
	{"berg.norelect.ch", "challengeinstances", "", "create", "try"},
	{"berg.norelect.ch", "challengeinstances", "", "patch", "extend, end, rollout, freeze"},
	{"berg.norelect.ch", "challengeinstances", "", "delete", "try"},
	{"berg.norelect.ch", "challenges", "", "get", "try, rollout"},
	{"berg.norelect.ch", "challenges", "", "patch", "freeze"},
}

// ofRecords are those in the namespace of records.
var ofRecords = []struct{ group, resource, subresource, verb, needs string }{
	{"berg.norelect.ch", "challengeinstancerecords", "", "list", "records, record"},
	{"berg.norelect.ch", "challengeinstancerecords", "", "get", "record"},
}

// inInstances are those in the namespaces of instances.
var inInstances = []struct{ group, resource, subresource, verb, needs string }{
	{"", "pods", "", "list", "why, logs"},
	{"", "pods", "log", "get", "logs"},
	{"", "events", "", "list", "why"},
}

type surveyor struct {
	*cluster.Cluster
	options Options
	mu      sync.Mutex
	Survey
}

// Look reads what the user may read. It fails only where the API server cannot be reached.
func Look(ctx context.Context, c *cluster.Cluster, o Options) (Survey, error) {
	s := &surveyor{Cluster: c, options: o}
	s.Survey = Survey{Plugin: o.Plugin, APIs: map[string]Served{}, Unreadable: map[string]string{}}
	d, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return s.Survey, err
	}
	version, err := d.ServerVersion()
	if err != nil {
		return s.Survey, cluster.Explain("ask the API server for its version", err)
	}
	s.Server = version.GitVersion
	s.Survey.Skew, s.SkewKnown = c.Skew()
	if err := s.findOperator(ctx); err != nil {
		return s.Survey, err
	}
	s.together(ctx,
		func(context.Context) { s.apis(d) }, //nolint:contextcheck // the discovery client takes none
		s.rights, s.lease, s.gateway, s.nodes, s.challenges, s.instances, s.quotas, s.pullSecret,
	)
	if !o.Offline {
		s.together(ctx, s.names, s.connections)
	}
	s.Survey.Now = c.Now()
	return s.Survey, nil
}

func (s *surveyor) together(ctx context.Context, all ...func(context.Context)) {
	var group sync.WaitGroup
	for _, look := range all {
		group.Go(func() { look(ctx) })
	}
	group.Wait()
}

// keep notes the outcome of a reading; ok says that there is one.
func (s *surveyor) keep(what, noun string, err error) (ok bool) {
	if err == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case apierrors.IsForbidden(err):
		s.Unreadable[what] = "you may not read " + noun
	case apierrors.IsNotFound(err):
	default:
		s.Unreadable[what] = fmt.Sprintf("cannot read %s: %v", noun, err)
	}
	return false
}

func (s *surveyor) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *surveyor) apis(d discovery.DiscoveryInterface) {
	for _, gv := range []string{APIBerg, APIGateway, APICilium} {
		list, err := d.ServerResourcesForGroupVersion(gv)
		if err != nil {
			continue
		}
		served := Served{}
		for _, r := range list.APIResources {
			served.Resources = append(served.Resources, r.Name)
		}
		if gv == APIGateway {
			served.Release = s.release(context.Background())
		}
		s.set(func() { s.APIs[gv] = served })
	}
}

// release is the version that the Gateway API's definitions say of themselves.
func (s *surveyor) release(ctx context.Context) string {
	definition := &metav1.PartialObjectMetadata{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if s.Get(ctx, client.ObjectKey{Name: "httproutes.gateway.networking.k8s.io"}, definition) != nil {
		return ""
	}
	return definition.Annotations["gateway.networking.k8s.io/bundle-version"]
}

func (s *surveyor) rights(ctx context.Context) {
	ask := func(namespace string, group, resource, subresource, verb, needs string) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: group, Resource: resource, Subresource: subresource, Verb: verb},
		}}
		if !s.keep("rights", "your own rights", s.Create(ctx, review)) {
			return
		}
		name := resource
		if subresource != "" {
			name += "/" + subresource
		}
		s.set(func() {
			s.Rights = append(s.Rights, Right{Verb: verb, Resource: name, Namespace: namespace, Allowed: review.Status.Allowed, For: needs})
		})
	}
	for _, r := range wanted {
		ask(s.options.Namespace, r.group, r.resource, r.subresource, r.verb, r.needs)
	}
	for _, r := range ofRecords {
		ask(s.setting("RECORD_NAMESPACE"), r.group, r.resource, r.subresource, r.verb, r.needs)
	}
	for _, r := range inInstances {
		ask("", r.group, r.resource, r.subresource, r.verb, r.needs)
	}
}

// operatorLabels are those of its Deployment and pods.
var operatorLabels = client.MatchingLabels{"app.kubernetes.io/name": "berg-operator", "control-plane": "controller-manager"}

func (s *surveyor) findOperator(ctx context.Context) error {
	var all appsv1.DeploymentList
	opts := []client.ListOption{operatorLabels}
	if s.options.OperatorNamespace != "" {
		opts = append(opts, client.InNamespace(s.options.OperatorNamespace))
	}
	if err := s.List(ctx, &all, opts...); !s.keep("operator", "Deployments", err) {
		if cluster.Transient(err) {
			return cluster.Explain("look for the operator", err)
		}
		return nil
	}
	if len(all.Items) == 0 { // before it carried the first label
		if err := s.List(ctx, &all, append(opts[1:], client.MatchingLabels{"control-plane": "controller-manager"})...); err != nil {
			return nil //nolint:nilerr // it was readable a moment ago; the check says that it is not found
		}
		all.Items = slices.DeleteFunc(all.Items, func(d appsv1.Deployment) bool { return !strings.HasPrefix(d.Name, "berg-operator") })
	}
	if len(all.Items) == 0 {
		return nil
	}
	s.Deployment = &all.Items[0]
	if err := s.sources(ctx); err != nil {
		return err
	}
	var pods corev1.PodList
	if s.keep("operator pods", "the operator's pods", s.List(ctx, &pods, client.InNamespace(s.Deployment.Namespace), client.MatchingLabels(s.Deployment.Spec.Selector.MatchLabels))) {
		s.Pods = pods.Items
	}
	return nil
}

// sources reads the settings that the operator takes from whole objects, as far as its user may.
func (s *surveyor) sources(ctx context.Context) error {
	c := s.container()
	if c == nil {
		return nil
	}
	s.Sources = map[string]string{}
	for _, from := range c.EnvFrom {
		var o client.Object
		var values func() map[string]string
		var name, noun string
		switch {
		case from.ConfigMapRef != nil:
			m := &corev1.ConfigMap{}
			name, noun, o, values = from.ConfigMapRef.Name, "ConfigMap ", m, func() map[string]string { return m.Data }
		case from.SecretRef != nil:
			secret := &corev1.Secret{}
			name, noun, o, values = from.SecretRef.Name, "Secret ", secret, func() map[string]string {
				texts := map[string]string{}
				for k, v := range secret.Data {
					texts[k] = string(v)
				}
				return texts
			}
		default:
			continue
		}
		switch err := s.Get(ctx, client.ObjectKey{Namespace: s.Deployment.Namespace, Name: name}, o); {
		case err == nil:
			for k, v := range values() {
				s.Sources[from.Prefix+k] = v
			}
		case cluster.Transient(err):
			return cluster.Explain("read the operator's settings", err)
		case !apierrors.IsNotFound(err): // one that is not there sets nothing
			s.Unread = append(s.Unread, noun+name)
		}
	}
	return nil
}

func (s *surveyor) lease(ctx context.Context) {
	if s.Deployment == nil {
		return
	}
	l := &coordinationv1.Lease{}
	if !s.keep("lease", "the operator's lease", s.Get(ctx, client.ObjectKey{Namespace: s.Deployment.Namespace, Name: leaseName}, l)) {
		return
	}
	s.set(func() {
		if l.Spec.HolderIdentity != nil {
			s.Leader = *l.Spec.HolderIdentity
		}
		if l.Spec.RenewTime != nil {
			s.Renewed = l.Spec.RenewTime.Time
		}
		if l.Spec.LeaseDurationSeconds != nil {
			s.LeaseTime = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
		}
	})
}

func (s *surveyor) gateway(ctx context.Context) {
	g := &gatewayv1.Gateway{}
	key := client.ObjectKey{Namespace: s.setting("GATEWAY_NAMESPACE"), Name: s.setting("GATEWAY_NAME")}
	if s.keep("gateway", "Gateways", s.Get(ctx, key, g)) {
		s.set(func() { s.Gateway = g })
	}
}

func (s *surveyor) nodes(ctx context.Context) {
	var nodes corev1.NodeList
	if s.keep("nodes", "nodes", s.List(ctx, &nodes)) {
		s.set(func() {
			s.Nodes = nodes.Items
			for _, n := range nodes.Items {
				for _, a := range n.Status.Addresses {
					if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
						s.NodeIPs = append(s.NodeIPs, a.Address)
					}
				}
			}
		})
	}
	var services corev1.ServiceList
	if s.keep("services", "Services", s.List(ctx, &services)) {
		s.set(func() {
			for _, service := range services.Items {
				ports := map[int32]bool{}
				for _, p := range service.Spec.Ports {
					if p.NodePort != 0 {
						ports[p.NodePort] = true
					}
				}
				s.NodePorts += len(ports)
			}
		})
	}
	var pods corev1.PodList
	if s.keep("pods", "pods of all namespaces", s.List(ctx, &pods)) {
		s.set(func() {
			s.PodsOnNodes = map[string]int{}
			for _, p := range pods.Items {
				if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && p.Spec.NodeName != "" {
					s.PodsOnNodes[p.Spec.NodeName]++
				}
				if p.Labels[bergv1.LabelComponent] == bergv1.ComponentPod {
					s.InstancePods = append(s.InstancePods, p)
				}
			}
		})
	}
}

func (s *surveyor) challenges(ctx context.Context) {
	var all bergv1.ChallengeList
	if s.keep("challenges", "Challenges", s.List(ctx, &all)) {
		s.set(func() { s.Challenges = all.Items })
	}
}

func (s *surveyor) instances(ctx context.Context) {
	all, _, err := s.Cluster.Instances(ctx)
	if apierrors.IsForbidden(err) {
		all, _, err = s.Cluster.Instances(ctx, client.InNamespace(s.options.Namespace))
	}
	if s.keep("instances", "ChallengeInstances", err) {
		s.set(func() { s.Survey.Instances = all })
	}
}

func (s *surveyor) quotas(ctx context.Context) {
	var all corev1.ResourceQuotaList
	if !s.keep("quotas", "ResourceQuotas", s.List(ctx, &all)) {
		return
	}
	s.set(func() {
		for _, q := range all.Items {
			if strings.HasPrefix(q.Namespace, "challenge-") || q.Namespace == s.options.Namespace {
				s.Quotas = append(s.Quotas, q)
			}
		}
	})
}

// pullSecret asks whether the Secret is there, and for nothing of what is in it.
func (s *surveyor) pullSecret(ctx context.Context) {
	name := s.setting("PULL_SECRET_NAME")
	if name == "" || s.Deployment == nil {
		return
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	presence := There
	switch err := s.Get(ctx, client.ObjectKey{Namespace: s.Deployment.Namespace, Name: name}, secret); {
	case apierrors.IsNotFound(err):
		presence = Missing
	case err != nil:
		presence = Hidden
	}
	s.set(func() { s.PullSecret = presence })
}

func (s *surveyor) names(ctx context.Context) {
	domain, known := s.Setting("CHALLENGE_DOMAIN")
	if !known || s.Deployment == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	found, failed := map[string][]string{}, map[string]string{}
	for _, name := range []string{ProbeName + "." + domain, domain} {
		answer, err := net.DefaultResolver.LookupHost(ctx, name)
		found[name] = answer
		var unknown *net.DNSError
		switch {
		case errors.As(err, &unknown) && unknown.IsNotFound:
			failed[name] = "no such name"
		case err != nil:
			failed[name] = err.Error()
		}
	}
	s.set(func() { s.Names, s.NameErrors = found, failed })
}

// connections looks at the certificates that players are shown, at the Gateway itself, since the
// name may lead elsewhere.
func (s *surveyor) connections(ctx context.Context) {
	g := s.Gateway
	domain, known := s.Setting("CHALLENGE_DOMAIN")
	if g == nil || !known || len(g.Status.Addresses) == 0 {
		return
	}
	for _, l := range g.Spec.Listeners {
		if l.Protocol != gatewayv1.HTTPSProtocolType && l.Protocol != gatewayv1.TLSProtocolType {
			continue
		}
		if l.TLS != nil && l.TLS.Mode != nil && *l.TLS.Mode == gatewayv1.TLSModePassthrough {
			continue
		}
		address := net.JoinHostPort(g.Status.Addresses[0].Value, strconv.Itoa(int(l.Port)))
		switch string(l.Name) {
		case s.setting("CHALLENGE_HTTP_LISTENER_NAME"):
			seen := Handshake(ctx, address, ProbeName+"."+domain)
			s.set(func() { s.HTTPS = seen })
		case s.setting("CHALLENGE_TLS_LISTENER_NAME"):
			seen := Handshake(ctx, address, ProbeName+"."+domain)
			s.set(func() { s.TLSListener = seen })
		}
	}
}

// Handshake connects as a player's client does, and says what it sees. A certificate that is not
// to be trusted is looked at all the same.
func Handshake(ctx context.Context, address, name string) *TLS {
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	out := &TLS{Address: address}
	dial := func(trusting bool) error {
		//nolint:gosec // nothing is sent: the second attempt looks at the certificate that the first refused
		dialer := &tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: trusting, MinVersion: tls.VersionTLS12}}
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer func() { _ = connection.Close() }()
		if shown := connection.(*tls.Conn).ConnectionState().PeerCertificates; len(shown) > 0 {
			out.NotAfter, out.Issuer = shown[0].NotAfter, shown[0].Issuer.CommonName
		}
		return nil
	}
	err := dial(false)
	if err == nil {
		return out
	}
	out.Err = err.Error()
	var refused *tls.CertificateVerificationError
	if errors.As(err, &refused) {
		out.Distrusted = dial(true) == nil
		out.Err = refused.Err.Error()
	}
	return out
}

// SettingsOf reads the operator's settings for other commands; the error says why it cannot.
func SettingsOf(ctx context.Context, c *cluster.Cluster, operatorNamespace string) (Survey, error) {
	s := &surveyor{Cluster: c, options: Options{OperatorNamespace: operatorNamespace}}
	s.Survey = Survey{Unreadable: map[string]string{}}
	err := s.findOperator(ctx)
	return s.Survey, err
}
