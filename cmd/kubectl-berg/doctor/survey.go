package doctor

import (
	"context"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
)

// Inspect reads everything that the user may read. It fails only if the API server cannot be reached.
func Inspect(ctx context.Context, c *cluster.Cluster, o Options) (Survey, error) {
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
	s.inParallel(ctx,
		func(context.Context) { s.apis(d) }, //nolint:contextcheck // the discovery client takes no context
		s.rights, s.lease, s.gateway, s.nodes, s.challenges, s.instances, s.quotas, s.pullSecret, s.ciliumAgents,
		s.platform, s.programs, func(ctx context.Context) { s.policies(ctx, d) },
	)
	s.processes(ctx)
	if o.Whole {
		s.inParallel(ctx, s.checks, s.records)
	}
	if !o.Offline {
		s.inParallel(ctx, s.names, s.connections)
	}
	s.Survey.Now = c.Now()
	return s.Survey, nil
}

// inParallel waits for all of them, so that what follows may read their fields without the lock.
func (s *surveyor) inParallel(ctx context.Context, all ...func(context.Context)) {
	var group sync.WaitGroup
	for _, read := range all {
		group.Go(func() { read(ctx) })
	}
	group.Wait()
}

// apis leaves out a group that is not served, and one that cannot be read.
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

// release reads the version from the CRDs of the Gateway API.
func (s *surveyor) release(ctx context.Context) string {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if s.Get(ctx, client.ObjectKey{Name: "httproutes.gateway.networking.k8s.io"}, crd) != nil {
		return ""
	}
	return crd.Annotations["gateway.networking.k8s.io/bundle-version"]
}

// nodes also reads Services and pods, from which the use of nodes is counted. A failed list leaves its fields nil, and the others
// are read anyway.
func (s *surveyor) nodes(ctx context.Context) {
	var nodes corev1.NodeList
	if s.readable("nodes", "nodes", s.List(ctx, &nodes)) {
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
	if s.readable("services", "Services", s.List(ctx, &services)) {
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
	if s.readable("pods", "pods of all namespaces", s.List(ctx, &pods)) {
		s.set(func() {
			s.PodsOnNodes, s.Reserved = map[string]int{}, map[string]corev1.ResourceList{}
			for _, p := range pods.Items {
				if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && p.Spec.NodeName != "" {
					s.PodsOnNodes[p.Spec.NodeName]++
					s.reserve(&p)
				}
				if p.Labels[bergv1.LabelComponent] == bergv1.ComponentPod {
					s.InstancePods = append(s.InstancePods, p)
				}
			}
		})
	}
}

// reserve adds the requests of a pod to the reserved resources of its node.
func (s *surveyor) reserve(p *corev1.Pod) {
	taken := s.Reserved[p.Spec.NodeName]
	if taken == nil {
		taken = corev1.ResourceList{}
		s.Reserved[p.Spec.NodeName] = taken
	}
	for name, amount := range resource.PodRequests(p, resource.PodResourcesOptions{UseStatusResources: true}) {
		sum := taken[name]
		sum.Add(amount)
		taken[name] = sum
	}
}

func (s *surveyor) challenges(ctx context.Context) {
	var all bergv1.ChallengeList
	if s.readable("challenges", "Challenges", s.listInScope(ctx, &all)) {
		s.set(func() { s.Challenges = all.Items })
	}
}

// listInScope lists objects of all namespaces, or of the user's alone with OneNamespace or without the right to do more.
func (s *surveyor) listInScope(ctx context.Context, all client.ObjectList) error {
	own := client.InNamespace(s.options.Namespace)
	if s.options.OneNamespace {
		return s.List(ctx, all, own)
	}
	err := s.List(ctx, all)
	if apierrors.IsForbidden(err) {
		err = s.List(ctx, all, own)
	}
	return err
}

// instances falls back to the user's namespace where the user may not read all.
func (s *surveyor) instances(ctx context.Context) {
	var opts []client.ListOption
	if s.options.OneNamespace {
		opts = append(opts, client.InNamespace(s.options.Namespace))
	}
	all, _, err := s.Cluster.Instances(ctx, opts...)
	if apierrors.IsForbidden(err) {
		all, _, err = s.Cluster.Instances(ctx, client.InNamespace(s.options.Namespace))
	}
	if s.readable("instances", "ChallengeInstances", err) {
		s.set(func() { s.Survey.Instances = all })
	}
}

// quotas keeps quotas of namespaces in which instances run, by their names, and of the user's.
func (s *surveyor) quotas(ctx context.Context) {
	var all corev1.ResourceQuotaList
	if !s.readable("quotas", "ResourceQuotas", s.List(ctx, &all)) {
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

// pullSecret checks whether the Secret exists, and does not read its data.
func (s *surveyor) pullSecret(ctx context.Context) {
	name := s.setting("PULL_SECRET_NAME")
	if name == "" || s.Deployment == nil {
		return
	}
	presence := s.presence(ctx, corev1.SchemeGroupVersion.WithKind("Secret"), client.ObjectKey{Namespace: s.Deployment.Namespace, Name: name})
	s.set(func() { s.PullSecret = presence })
}

// ciliumAgents checks the condition that NETWORK_POLICY=auto depends on.
func (s *surveyor) ciliumAgents(ctx context.Context) {
	agents, presence := &appsv1.DaemonSet{}, Hidden
	switch err := s.Get(ctx, client.ObjectKey{Namespace: s.setting("CILIUM_NAMESPACE"), Name: "cilium"}, agents); {
	case err == nil && agents.Status.NumberReady > 0:
		presence = Present
	case err == nil || apierrors.IsNotFound(err):
		presence = Missing
	}
	s.set(func() { s.CiliumAgents = presence })
}

// presence reads metadata only, so that no data of the object gets into the memory.
func (s *surveyor) presence(ctx context.Context, kind schema.GroupVersionKind, key client.ObjectKey) Presence {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	switch err := s.Get(ctx, key, object); {
	case apierrors.IsNotFound(err):
		return Missing
	case err != nil:
		return Hidden
	default:
		return Present
	}
}

// requiredRights are the permissions that the commands need.
var requiredRights = []struct{ group, resource, subresource, verb, needs string }{
	{"berg.norelect.ch", "challengeinstances", "", "list", "all commands"},
	{"berg.norelect.ch", "challengeinstances", "", "watch", "try, connect, list -w, rollout, end --wait"},
	{"berg.norelect.ch", "challengeinstances", "", "create", "try"},
	{"berg.norelect.ch", "challengeinstances", "", "patch", "extend, end, rollout, freeze"},
	{"berg.norelect.ch", "challengeinstances", "", "delete", "try"},
	{"berg.norelect.ch", "challenges", "", "get", "try, rollout"},
	{"berg.norelect.ch", "challenges", "", "patch", "freeze"},
}

// recordRights are the permissions in the namespace of the records.
var recordRights = []struct{ group, resource, subresource, verb, needs string }{
	{"berg.norelect.ch", "challengeinstancerecords", "", "list", "records, record"},
	{"berg.norelect.ch", "challengeinstancerecords", "", "get", "record"},
}

// instanceRights are the permissions in the namespaces of instances.
var instanceRights = []struct{ group, resource, subresource, verb, needs string }{
	{"", "pods", "", "list", "why, logs"},
	{"", "pods", "log", "get", "logs"},
	{"", "events", "", "list", "why"},
}

// rights asks the API server whether the user has the permissions of all commands. RBAC alone could not answer: other
// authorizers may decide, too. The reviews are one after the other; the first that fails has the reason for all.
func (s *surveyor) rights(ctx context.Context) {
	ask := func(namespace string, group, resource, subresource, verb, needs string) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: group, Resource: resource, Subresource: subresource, Verb: verb},
		}}
		if !s.readable("rights", "your own permissions", s.Create(ctx, review)) {
			return
		}
		name := resource
		if subresource != "" {
			name += "/" + subresource
		}
		s.set(func() {
			s.Rights = append(s.Rights, Right{Verb: verb, Resource: name, Allowed: review.Status.Allowed, For: needs})
		})
	}
	for _, r := range requiredRights {
		ask(s.options.Namespace, r.group, r.resource, r.subresource, r.verb, r.needs)
	}
	for _, r := range recordRights {
		ask(s.setting("RECORD_NAMESPACE"), r.group, r.resource, r.subresource, r.verb, r.needs)
	}
	for _, r := range instanceRights {
		ask("", r.group, r.resource, r.subresource, r.verb, r.needs)
	}
}
