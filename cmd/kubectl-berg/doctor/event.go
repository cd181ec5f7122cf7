package doctor

import (
	"cmp"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
)

// Event reads the operator, the instances, Challenges and checks of an event, the records, and the free capacity of the
// cluster. Only the instances must be readable.
func Event(ctx context.Context, c *cluster.Cluster, o Options) (Survey, error) {
	s := &surveyor{Cluster: c, options: o}
	s.Survey = Survey{Plugin: o.Plugin, Unreadable: map[string]string{}}
	if err := s.findOperator(ctx); err != nil {
		return s.Survey, err
	}
	var failed error
	s.inParallel(ctx, s.lease, s.nodes, s.challenges, s.checks, s.records, s.gateway, s.platform, s.uses, func(ctx context.Context) { failed = s.eventInstances(ctx) })
	s.inParallel(ctx, s.processes, s.connections)
	s.Survey.Now = c.Now()
	return s.Survey, cluster.Explain("list instances", failed)
}

// eventInstances fails where instances does not: without them there is nothing to show.
func (s *surveyor) eventInstances(ctx context.Context) error {
	own := client.InNamespace(s.options.Namespace)
	var opts []client.ListOption
	if s.options.OneNamespace {
		opts = append(opts, own)
	}
	all, _, err := s.Cluster.Instances(ctx, opts...)
	if apierrors.IsForbidden(err) && !s.options.OneNamespace {
		s.set(func() {
			s.Unreadable["instances"] = "you may not read instances of all namespaces: only those of " + s.options.Namespace + " are shown"
		})
		all, _, err = s.Cluster.Instances(ctx, own)
	}
	s.set(func() { s.Survey.Instances = all })
	return err
}

func (s *surveyor) checks(ctx context.Context) {
	var all bergv1.ChallengeCheckList
	if s.readable("checks", "ChallengeChecks", s.listInScope(ctx, &all)) {
		s.set(func() { s.Checks = append([]bergv1.ChallengeCheck{}, all.Items...) })
	}
}

// records reads the metadata only: a thousand logs are large.
func (s *surveyor) records(ctx context.Context) {
	var all metav1.PartialObjectMetadataList
	all.SetGroupVersionKind(bergv1.GroupVersion.WithKind("ChallengeInstanceRecordList"))
	from := cmp.Or(s.options.Records, s.setting("RECORD_NAMESPACE"))
	if s.readable("records", "the records in namespace "+from, s.List(ctx, &all, client.InNamespace(from))) {
		s.set(func() { s.Records = append([]metav1.PartialObjectMetadata{}, all.Items...) })
	}
}

// Operator returns the checks of the operator itself.
func Operator(s Survey) []Result { return oneLine(append(operator(s), versions(s)...)) }
