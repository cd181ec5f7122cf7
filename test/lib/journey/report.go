package journey

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/test/lib/deployed"
)

// reportedLines is how much of the operator's log a failure shows.
const reportedLines = 60

// report prints what is needed to understand a failure: the spec and the phases
// of each instance, its pods, the events, the end of the operator's log.
// What cannot be read is named and does not hide the rest.
func (s *Stage) report(ctx context.Context) {
	for _, story := range s.Stories {
		say("== %s: phases %v", story.Key, story.Phases())
		for _, m := range story.Moments() {
			say("   %s %s", m.At.Format("15:04:05.000"), Summary(m.Instance))
		}
		if now := story.Now(); now != nil {
			status, err := yaml.Marshal(now.Status)
			say("%s%v", status, orNothing(err))
		}
		s.reportPods(ctx, story.InstanceNamespace())
	}
	for _, namespace := range append([]string{s.Namespace}, s.InstanceNamespaces()...) {
		s.reportEvents(ctx, namespace)
	}
	log, err := deployed.World.OperatorLog(ctx)
	lines := strings.Split(strings.TrimSpace(log), "\n")
	say("== operator's log %v\n%s", orNothing(err), strings.Join(lines[max(0, len(lines)-reportedLines):], "\n"))
}

func (s *Stage) reportPods(ctx context.Context, namespace string) {
	var pods corev1.PodList
	if err := deployed.World.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		say("pods of %s: %v", namespace, err)
	}
	for _, pod := range pods.Items {
		say("pod %s/%s: %s", pod.Namespace, pod.Name, pod.Status.Phase)
		for _, c := range pod.Status.ContainerStatuses {
			state, err := yaml.Marshal(c.State)
			say("   %s ready=%v restarts=%d %s%v", c.Name, c.Ready, c.RestartCount,
				strings.ReplaceAll(string(state), "\n", " "), orNothing(err))
		}
	}
}

func (s *Stage) reportEvents(ctx context.Context, namespace string) {
	var events corev1.EventList
	if err := deployed.World.List(ctx, &events, client.InNamespace(namespace)); err != nil {
		say("events of %s: %v", namespace, err)
	}
	slices.SortFunc(events.Items, func(a, b corev1.Event) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, e := range events.Items {
		say("event %s %s/%s %s: %s", e.CreationTimestamp.Format("15:04:05"), e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
}

func say(format string, args ...any) {
	fmt.Fprintf(GinkgoWriter, format+"\n", args...)
}

// orNothing keeps "<nil>" out of the report.
func orNothing(err error) any {
	if err == nil {
		return ""
	}
	return err
}
