package e2e

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// stage is a namespace for the Challenges and instances of one spec.
type stage struct {
	namespace string
	stories   []*story
}

// newStage makes a stage and, after the spec, proves that no flag was told and
// removes everything again.
func newStage(ctx context.Context) *stage {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-", Labels: map[string]string{stageLabel: ""},
	}}
	Expect(world.Create(ctx, namespace)).To(Succeed())
	s := &stage{namespace: namespace.Name}
	// The last one runs first, and each runs whatever became of the others.
	DeferCleanup(func(ctx SpecContext) { s.clear(ctx) }, NodeTimeout(2*deleteLimit))
	DeferCleanup(func(ctx SpecContext) { s.expectFlagsUntold(ctx) }, NodeTimeout(reactLimit))
	DeferCleanup(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			s.report(ctx)
		}
	}, NodeTimeout(reactLimit))
	return s
}

// clear removes the instances, waits until they are gone with their namespaces,
// and removes the stage.
func (s *stage) clear(ctx context.Context) {
	GinkgoHelper()
	all := client.InNamespace(s.namespace)
	Expect(world.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, all)).To(Succeed())
	until(ctx, deleteLimit, func(ctx context.Context) error {
		var left bergv1.ChallengeInstanceList
		if err := world.List(ctx, &left, all); err != nil {
			return err
		}
		return not(len(left.Items) > 0, fmt.Sprintf("%d instances are left in %s", len(left.Items), s.namespace))
	})
	for _, story := range s.stories {
		Expect(world.namespaceGone(ctx, story.instanceNamespace())).To(Succeed())
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	Expect(client.IgnoreNotFound(world.Delete(ctx, namespace))).To(Succeed())
}

// stageLabel marks the namespaces of the stages.
const stageLabel = "e2e.berg.norelect.ch/stage"

// expectNoStage waits for what clear leaves to the namespace controller, which
// looks at a namespace only every few seconds.
func expectNoStage(ctx SpecContext) {
	until(ctx, deleteLimit, func(ctx context.Context) error {
		var stages corev1.NamespaceList
		if err := world.List(ctx, &stages, client.HasLabels{stageLabel}); err != nil {
			return err
		}
		return not(len(stages.Items) > 0, fmt.Sprintf("%d stages are left", len(stages.Items)))
	})
}

// expectFlagsUntold looks where a flag must never appear.
func (s *stage) expectFlagsUntold(ctx context.Context) {
	GinkgoHelper()
	log, err := world.operatorLog(ctx)
	Expect(err).NotTo(HaveOccurred())
	places := map[string]string{"the operator's log": log}
	for _, namespace := range append(s.instanceNamespaces(), s.namespace) {
		var events corev1.EventList
		Expect(world.List(ctx, &events, client.InNamespace(namespace))).To(Succeed())
		text, err := yaml.Marshal(events.Items)
		Expect(err).NotTo(HaveOccurred())
		places["an event in "+namespace] = string(text)
	}
	for _, story := range s.stories {
		for _, m := range story.told() {
			text, err := yaml.Marshal(struct {
				Labels, Annotations map[string]string
				Status              bergv1.ChallengeInstanceStatus
			}{m.instance.Labels, m.instance.Annotations, m.instance.Status})
			Expect(err).NotTo(HaveOccurred())
			places["the status of "+story.key.String()] += string(text)
		}
	}
	for _, story := range s.stories {
		if story.flag == "" {
			continue
		}
		for place, text := range places {
			Expect(strings.Contains(text, story.flag)).To(BeFalse(), "%s tells the flag of %s", place, story.key)
		}
	}
}

func (s *stage) instanceNamespaces() []string {
	var names []string
	for _, story := range s.stories {
		names = append(names, story.instanceNamespace())
	}
	return names
}

// sample creates one of the Challenges of config/berg/samples here.
func (s *stage) sample(ctx context.Context, name string) *bergv1.Challenge {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "berg", "samples", "berg_v1_challenge_"+name+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	challenge := &bergv1.Challenge{}
	Expect(yaml.UnmarshalStrict(text, challenge)).To(Succeed())
	challenge.Namespace = s.namespace
	Expect(world.Create(ctx, challenge)).To(Succeed())
	return challenge
}

// challenge creates a Challenge of these containers.
func (s *stage) challenge(ctx context.Context, name string, containers ...bergv1.Container) *bergv1.Challenge {
	GinkgoHelper()
	challenge := &bergv1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec:       bergv1.ChallengeSpec{Containers: containers},
	}
	Expect(world.Create(ctx, challenge)).To(Succeed())
	return challenge
}

// instance returns an instance, not created, for an owner and with a flag of its
// own.
func (s *stage) instance(challenge string) *bergv1.ChallengeInstance {
	owner := uuid.NewString()
	return &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "owner-" + owner, Namespace: s.namespace},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: challenge, Namespace: s.namespace},
			OwnerID:      owner,
			Flag:         "flag{e2e-" + strings.ReplaceAll(uuid.NewString(), "-", "_") + "}",
			Timeout:      "20m",
		},
	}
}

// start creates an instance and follows it.
func (s *stage) start(ctx context.Context, instance *bergv1.ChallengeInstance) *story {
	GinkgoHelper()
	told := follow(instance)
	s.stories = append(s.stories, told)
	Expect(world.Create(ctx, instance)).To(Succeed())
	return told
}

// runToolbox starts an instance of one toolbox container and waits until it
// runs.
func (s *stage) runToolbox(ctx context.Context) *story {
	GinkgoHelper()
	s.challenge(ctx, "toolbox", toolbox("box"))
	told := s.start(ctx, s.instance("toolbox"))
	told.expectPhase(ctx, startLimit, bergv1.PhaseRunning)
	return told
}

const toolboxImage = "ghcr.io/bergctf/samples/toolbox:v0.1.0"

// toolbox returns a container that does nothing until it is asked.
func toolbox(hostname string, ports ...bergv1.Port) bergv1.Container {
	return bergv1.Container{
		Hostname:         hostname,
		Image:            toolboxImage,
		Ports:            ports,
		ResourceRequests: &bergv1.Resources{CPU: ptr.To(bergv1.Amount("10m")), Memory: ptr.To(bergv1.Amount("16Mi"))},
		ResourceLimits:   &bergv1.Resources{CPU: ptr.To(bergv1.Amount("200m")), Memory: ptr.To(bergv1.Amount("64Mi"))},
	}
}

// visitor starts a pod outside every instance and returns its name.
func (s *stage) visitor(ctx context.Context) client.ObjectKey {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "visitor", Namespace: s.namespace},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "toolbox", Image: toolboxImage, ImagePullPolicy: corev1.PullIfNotPresent,
			}},
			TerminationGracePeriodSeconds: new(int64),
		},
	}
	Expect(world.Create(ctx, pod)).To(Succeed())
	key := client.ObjectKeyFromObject(pod)
	until(ctx, startLimit, func(ctx context.Context) error {
		if err := world.Get(ctx, key, pod); err != nil {
			return err
		}
		return not(!podReady(pod), "the visitor's pod is not ready")
	})
	return key
}

// namespaceGone is an error while the namespace exists.
func (c *cluster) namespaceGone(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("namespace %s exists, phase %s, conditions %v", name, namespace.Status.Phase, namespace.Status.Conditions)
	}
}
