package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	kitsettings "github.com/bergctf/berg-operator/internal/kit/settings"
)

// Options of Inspect and Event.
type Options struct {
	// OperatorNamespace is the namespace of the operator, "" to search all.
	OperatorNamespace string
	// Namespace is the namespace of the user's instances.
	Namespace string
	// OneNamespace reads the instances and Challenges of Namespace only.
	OneNamespace bool
	// Records is the namespace of the records, "" for the operator's RECORD_NAMESPACE.
	Records string
	// NoSecrets does not read settings from Secrets: they count as unread.
	NoSecrets bool
	// Whole also reads the objects for Event.
	Whole  bool
	Plugin string
	// Offline skips checks that need more than the API server: DNS and a connection to the Gateway.
	Offline bool
}

// surveyor reads a Survey. mu guards the Survey while reads run concurrently: they write with set and readable.
type surveyor struct {
	*cluster.Cluster
	options Options
	mu      sync.Mutex
	Survey
}

// readable records the error of a read, and reports whether there is none. An object that does not exist is no error to show: it
// is false, and Unreadable stays as it is.
func (s *surveyor) readable(kind, noun string, err error) (ok bool) {
	if err == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case apierrors.IsForbidden(err):
		s.Unreadable[kind] = "you may not read " + noun
	case apierrors.IsNotFound(err):
	default:
		s.Unreadable[kind] = fmt.Sprintf("cannot read %s: %v", noun, err)
	}
	return false
}

// set must not be nested, and do must not read from the cluster: the lock is not reentrant, and every other read waits.
func (s *surveyor) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// operatorLabels are the labels of the Deployment and the pods of the operator.
var operatorLabels = client.MatchingLabels{"app.kubernetes.io/name": "berg-operator", "control-plane": "controller-manager"}

// ReadSettings reads the operator's settings for other commands.
func ReadSettings(ctx context.Context, c *cluster.Cluster, operatorNamespace string) (Survey, error) {
	s := &surveyor{Cluster: c, options: Options{OperatorNamespace: operatorNamespace}}
	s.Survey = Survey{Unreadable: map[string]string{}}
	err := s.findOperator(ctx)
	return s.Survey, err
}

// findOperator finds the operator's Deployment by its labels, and reads its settings and pods. It fails only if the API
// server does not answer; a missing permission or Deployment is a result of the checks.
func (s *surveyor) findOperator(ctx context.Context) error {
	var all appsv1.DeploymentList
	opts := []client.ListOption{operatorLabels}
	if s.options.OperatorNamespace != "" {
		opts = append(opts, client.InNamespace(s.options.OperatorNamespace))
	}
	if err := s.List(ctx, &all, opts...); !s.readable("operator", "Deployments", err) {
		if cluster.Transient(err) {
			return cluster.Explain("look for the operator", err)
		}
		return nil
	}
	if len(all.Items) == 0 { // earlier releases do not have the first label
		if err := s.List(ctx, &all, append(opts[1:], client.MatchingLabels{"control-plane": "controller-manager"})...); err != nil {
			return nil //nolint:nilerr // the first list succeeded; the check reports that it was not found
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
	if s.readable("operator pods", "the operator's pods", s.List(ctx, &pods, client.InNamespace(s.Deployment.Namespace), client.MatchingLabels(s.Deployment.Spec.Selector.MatchLabels))) {
		s.Pods = pods.Items
	}
	return nil
}

// sources reads the settings from envFrom and from the ConfigMap, as far as the user may.
func (s *surveyor) sources(ctx context.Context) error {
	c := s.container()
	if c == nil {
		return nil
	}
	s.Sources = map[string]string{}
	shared := &corev1.ConfigMap{}
	switch err := s.Get(ctx, client.ObjectKey{Namespace: s.Deployment.Namespace, Name: kitsettings.ConfigMap}, shared); {
	case cluster.Transient(err):
		return cluster.Explain("read the operator's settings", err)
	case err == nil:
		s.Shared, s.SharedProblem = kitsettings.JoinContent(shared.Data, shared.BinaryData), s.findProblem(ctx, shared)
	case !apierrors.IsNotFound(err):
		s.Unread = append(s.Unread, "ConfigMap "+kitsettings.ConfigMap)
	}
	for _, from := range c.EnvFrom {
		var o client.Object
		var values func() map[string]string
		var name, noun string
		switch {
		case from.ConfigMapRef != nil:
			m := &corev1.ConfigMap{}
			name, noun, o, values = from.ConfigMapRef.Name, "ConfigMap ", m, func() map[string]string { return m.Data }
		case from.SecretRef != nil && s.options.NoSecrets:
			s.Unread = append(s.Unread, "Secret "+from.SecretRef.Name)
			continue
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
		case !apierrors.IsNotFound(err): // a missing one sets nothing
			s.Unread = append(s.Unread, noun+name)
		}
	}
	return nil
}

// findProblem returns the errors of programs about this version of their ConfigMap, "" for none, and for a user who may not read events.
func (s *surveyor) findProblem(ctx context.Context, shared *corev1.ConfigMap) string {
	var all corev1.EventList
	_ = s.List(ctx, &all, client.InNamespace(shared.Namespace), client.MatchingFields{"involvedObject.uid": string(shared.UID), "reason": kitsettings.ReasonInvalid})
	var texts []string
	for _, e := range all.Items {
		if e.InvolvedObject.ResourceVersion == shared.ResourceVersion {
			texts = append(texts, e.ReportingController+": "+strings.ReplaceAll(e.Message, "\n", "; "))
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

// lease leaves Leader empty where the lease has no holder or does not exist.
func (s *surveyor) lease(ctx context.Context) {
	if s.Deployment == nil {
		return
	}
	l := &coordinationv1.Lease{}
	if !s.readable("lease", "the operator's lease", s.Get(ctx, client.ObjectKey{Namespace: s.Deployment.Namespace, Name: s.setting("LEASE_NAME")}, l)) {
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
