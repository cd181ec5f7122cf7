package doctor

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/cluster"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
	"github.com/bergctf/berg-operator/internal/kit/podport"
	"github.com/bergctf/berg-operator/internal/kit/podstate"
)

// ReadUses asks the replicas of the gate how players use instances. missing says why that is not known, "" if it is or without a
// gate. err is only for an API server that does not answer.
func ReadUses(ctx context.Context, c *cluster.Cluster, operatorNamespace string) (uses *view.Uses, missing string, err error) {
	s := &surveyor{Cluster: c, options: Options{OperatorNamespace: operatorNamespace}}
	s.Survey = Survey{Unreadable: map[string]string{}}
	if err := s.findOperator(ctx); err != nil {
		return nil, "", err
	}
	s.uses(ctx)
	switch {
	case s.Unreadable["uses"] != "":
		return nil, s.Unreadable["uses"], nil
	case s.Deployment == nil:
		return nil, "the operator was not found: name its namespace with --operator-namespace", nil
	case s.Uses == nil:
		return nil, fmt.Sprintf("no replica of the gate is ready in %s", s.Deployment.Namespace), nil
	}
	return s.Uses, "", nil
}

// uses asks each replica of the gate. Its admin port answers few clients of the cluster, so the requests go through the kubelet.
// One replica that does not answer leaves Uses nil, because sums without it would be too low.
func (s *surveyor) uses(ctx context.Context) {
	if s.Deployment == nil {
		return
	}
	var pods corev1.PodList
	labels := client.MatchingLabels{"app.kubernetes.io/name": gateadmin.Name}
	if !s.readable("uses", "the pods of the gate", s.List(ctx, &pods, client.InNamespace(s.Deployment.Namespace), labels)) {
		return
	}
	raw, err := s.Raw(corev1.SchemeGroupVersion)
	if err != nil {
		s.readable("uses", "how instances are used", err)
		return
	}
	var asking sync.WaitGroup
	var reports []gateadmin.Report
	for n := range pods.Items {
		port := adminPort(&pods.Items[n])
		if port == 0 {
			continue
		}
		pod := &pods.Items[n]
		target := raw.Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("portforward").URL()
		asking.Go(func() {
			replica := &http.Client{Timeout: networkTimeout, Transport: podport.Transport{Config: s.Config, Target: target, Port: port}}
			report, err := gateadmin.AskUsage(ctx, replica, pod.Name, time.Time{})
			if s.readable("uses", "how instances are used, of "+pod.Name, err) {
				s.set(func() { reports = append(reports, report) })
			}
		})
	}
	asking.Wait()
	if len(reports) > 0 && s.Unreadable["uses"] == "" {
		s.Uses = &view.Uses{}
		s.Uses.Merge(reports, s.Cluster.Now(), true)
	}
}

// adminPort returns the admin port of a replica that is ready, 0 for another pod.
func adminPort(pod *corev1.Pod) int32 {
	if !podstate.Ready(pod) {
		return 0
	}
	for n := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[n].Ports {
			if port.Name == gateadmin.Port {
				return port.ContainerPort
			}
		}
	}
	return 0
}
