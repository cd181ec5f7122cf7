// Package journey follows challenge instances on a cluster with a deployed operator: a stage
// for the Challenges and instances of a spec, and the story of each instance as a watch
// shows it.
package journey

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// Stage is a namespace for the Challenges and instances of one spec.
type Stage struct {
	Namespace string
	Stories   []*Story
}

// NewStage makes a stage and, after the spec, checks that no flag was logged and
// removes everything again.
func NewStage(ctx context.Context) *Stage {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-", Labels: map[string]string{deployed.StageLabel: ""},
	}}
	Expect(deployed.World.Create(ctx, namespace)).To(Succeed())
	s := &Stage{Namespace: namespace.Name}
	// The last one runs first, and each runs also when others failed.
	DeferCleanup(func(ctx SpecContext) { s.clear(ctx) }, NodeTimeout(2*deployed.DeleteLimit))
	DeferCleanup(func(ctx SpecContext) { s.expectNoFlagInLogs(ctx) }, NodeTimeout(deployed.ReactLimit))
	DeferCleanup(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			s.report(ctx)
		}
	}, NodeTimeout(deployed.ReactLimit))
	return s
}

// clear removes the instances, waits until they are gone with their namespaces,
// and removes the stage.
func (s *Stage) clear(ctx context.Context) {
	GinkgoHelper()
	all := client.InNamespace(s.Namespace)
	Expect(deployed.World.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, all)).To(Succeed())
	expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error {
		var left bergv1.ChallengeInstanceList
		if err := deployed.World.List(ctx, &left, all); err != nil {
			return err
		}
		return deployed.ErrorIf(len(left.Items) > 0, fmt.Sprintf("%d instances are left in %s", len(left.Items), s.Namespace))
	})
	for _, story := range s.Stories {
		Expect(deployed.World.NamespaceGone(ctx, story.InstanceNamespace())).To(Succeed())
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
	Expect(client.IgnoreNotFound(deployed.World.Delete(ctx, namespace))).To(Succeed())
}

// expectNoFlagInLogs looks where a flag must never appear.
func (s *Stage) expectNoFlagInLogs(ctx context.Context) {
	GinkgoHelper()
	log, err := deployed.World.OperatorLog(ctx)
	Expect(err).NotTo(HaveOccurred())
	places := map[string]string{"the operator's log": log}
	for _, namespace := range append(s.InstanceNamespaces(), s.Namespace) {
		var events corev1.EventList
		Expect(deployed.World.List(ctx, &events, client.InNamespace(namespace))).To(Succeed())
		text, err := yaml.Marshal(events.Items)
		Expect(err).NotTo(HaveOccurred())
		places["an event in "+namespace] = string(text)
	}
	for _, story := range s.Stories {
		for _, m := range story.Moments() {
			text, err := yaml.Marshal(struct {
				Labels, Annotations map[string]string
				Status              bergv1.ChallengeInstanceStatus
			}{m.Instance.Labels, m.Instance.Annotations, m.Instance.Status})
			Expect(err).NotTo(HaveOccurred())
			places["the status of "+story.Key.String()] += string(text)
		}
	}
	for _, story := range s.Stories {
		if story.Flag == "" {
			continue
		}
		for place, text := range places {
			Expect(strings.Contains(text, story.Flag)).To(BeFalse(), "%s tells the flag of %s", place, story.Key)
		}
	}
}

// InstanceNamespaces returns the namespaces of the instances that were started here.
func (s *Stage) InstanceNamespaces() []string {
	var names []string
	for _, story := range s.Stories {
		names = append(names, story.InstanceNamespace())
	}
	return names
}

// Sample creates one of the Challenges of config/berg/samples here.
func (s *Stage) Sample(ctx context.Context, name string) *bergv1.Challenge {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "berg", "samples", "berg_v1_challenge_"+name+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	challenge := &bergv1.Challenge{}
	Expect(yaml.UnmarshalStrict(text, challenge)).To(Succeed())
	challenge.Namespace = s.Namespace
	Expect(deployed.World.Create(ctx, challenge)).To(Succeed())
	return challenge
}

// Challenge creates a Challenge of these containers.
func (s *Stage) Challenge(ctx context.Context, name string, containers ...bergv1.Container) *bergv1.Challenge {
	GinkgoHelper()
	challenge := &bergv1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace},
		Spec:       bergv1.ChallengeSpec{Containers: containers},
	}
	Expect(deployed.World.Create(ctx, challenge)).To(Succeed())
	return challenge
}

// Instance returns an instance, not created, for an owner and with a flag of its
// own.
func (s *Stage) Instance(challenge string) *bergv1.ChallengeInstance {
	owner := uuid.NewString()
	return &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "owner-" + owner, Namespace: s.Namespace},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: challenge, Namespace: s.Namespace},
			OwnerID:      owner,
			Flag:         "flag{e2e-" + strings.ReplaceAll(uuid.NewString(), "-", "_") + "}",
			Timeout:      "20m",
		},
	}
}

// Start creates an instance and follows it.
func (s *Stage) Start(ctx context.Context, instance *bergv1.ChallengeInstance) *Story {
	GinkgoHelper()
	story := Follow(instance)
	s.Stories = append(s.Stories, story)
	Expect(deployed.World.Create(ctx, instance)).To(Succeed())
	return story
}

// RunToolbox starts an instance of one toolbox container and waits until it
// runs.
func (s *Stage) RunToolbox(ctx context.Context) *Story {
	GinkgoHelper()
	s.Challenge(ctx, "toolbox", Toolbox("box"))
	story := s.Start(ctx, s.Instance("toolbox"))
	story.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
	return story
}

// Toolbox returns a container that does nothing until it is asked.
func Toolbox(hostname string, ports ...bergv1.Port) bergv1.Container {
	return bergv1.Container{
		Hostname:         hostname,
		Image:            deployed.ToolboxImage,
		Ports:            ports,
		ResourceRequests: &bergv1.Resources{CPU: ptr.To(bergv1.Amount("10m")), Memory: ptr.To(bergv1.Amount("16Mi"))},
		ResourceLimits:   &bergv1.Resources{CPU: ptr.To(bergv1.Amount("200m")), Memory: ptr.To(bergv1.Amount("64Mi"))},
	}
}

// Visitor starts a pod outside every instance and returns its name.
func (s *Stage) Visitor(ctx context.Context) client.ObjectKey {
	GinkgoHelper()
	return client.ObjectKeyFromObject(s.Outsider(ctx, "visitor"))
}

// Outsider starts a toolbox outside every instance, which no policy of the operator selects.
func (s *Stage) Outsider(ctx context.Context, name string, env ...corev1.EnvVar) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.Namespace},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "toolbox", Image: deployed.ToolboxImage, ImagePullPolicy: corev1.PullIfNotPresent, Env: env,
			}},
			TerminationGracePeriodSeconds: new(int64),
		},
	}
	Expect(deployed.World.Create(ctx, pod)).To(Succeed())
	expect.Refreshed(ctx, deployed.StartLimit, pod, func() error {
		return deployed.ErrorIf(!deployed.PodReady(pod), "the pod of the "+name+" is not ready")
	})
	return pod
}
