package hexactf

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/broker"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
)

// webImage serves a page at webPort.
const (
	webImage = "ghcr.io/bergctf/samples/web:v0.1.0"
	webPort  = 8080
)

// The states that the platform's consumer accepts.
const (
	creating = "Creating"
	running  = "Running"
	failed   = "Error"
	deleted  = "Deleted"
)

// platform is the API server of the existing platform, in a namespace of its own.
type platform struct{ namespace string }

func newPlatform(ctx context.Context) *platform {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: map[string]string{deployed.StageLabel: "", hexactftest.LabelOperator: "allowed"}}}
	Expect(world.Create(ctx, namespace)).To(Succeed())
	p := &platform{namespace.Name}
	DeferCleanup(func(ctx SpecContext) {
		all := client.InNamespace(p.namespace)
		Expect(world.DeleteAllOf(ctx, &hexactfv1.Challenge{}, all)).To(Succeed())
		expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error {
			var left hexactfv1.ChallengeList
			if err := world.List(ctx, &left, all); err != nil {
				return err
			}
			return deployed.ErrorIf(len(left.Items) > 0, fmt.Sprintf("%d challenges are left in %s", len(left.Items), p.namespace))
		})
		Expect(client.IgnoreNotFound(world.Delete(ctx, namespace))).To(Succeed())
	}, NodeTimeout(2*deployed.DeleteLimit))
	DeferCleanup(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			p.report(ctx)
		}
	}, NodeTimeout(deployed.ReactLimit))
	return p
}

// report adds what may explain a failure.
func (p *platform) report(ctx context.Context) {
	var all hexactfv1.ChallengeList
	Expect(world.List(ctx, &all, client.InNamespace(p.namespace))).To(Succeed())
	for _, c := range all.Items {
		status, err := json.Marshal(c.Status)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry(c.Name, fmt.Sprintf("deleted %v, status %s", c.DeletionTimestamp, status))
	}
	text, err := world.OperatorLog(ctx)
	Expect(err).NotTo(HaveOccurred())
	lines := strings.Split(text, "\n")
	AddReportEntry("the end of the operator's log", strings.Join(lines[max(0, len(lines)-60):], "\n"))
}

// define creates a definition of one web server that players visit.
func (p *platform) define(ctx context.Context, name string, change ...func(*hexactfv1.ChallengeDefinitionSpec)) {
	GinkgoHelper()
	definition := &hexactfv1.ChallengeDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name},
		Spec: hexactfv1.ChallengeDefinitionSpec{Components: []hexactfv1.Component{{
			Name: "web",
			Deployment: &hexactfv1.Deployment{Spec: hexactfv1.DeploymentSpec{
				Template: hexactfv1.PodTemplate{Spec: hexactfv1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: webImage, ImagePullPolicy: corev1.PullIfNotPresent,
					Ports: []corev1.ContainerPort{{ContainerPort: webPort}},
				}}}},
			}},
			Service: &hexactfv1.Service{Spec: corev1.ServiceSpec{
				Type:  corev1.ServiceTypeNodePort,
				Ports: []corev1.ServicePort{{Port: webPort, TargetPort: intstr.FromInt32(webPort)}},
			}},
		}}},
	}
	for _, c := range change {
		c(&definition.Spec)
	}
	Expect(world.Create(ctx, definition)).To(Succeed())
}

func lasting(d time.Duration) func(*hexactfv1.ChallengeDefinitionSpec) {
	return func(spec *hexactfv1.ChallengeDefinitionSpec) { spec.Duration = &metav1.Duration{Duration: d} }
}

func shared(spec *hexactfv1.ChallengeDefinitionSpec) { spec.IsOne = true }

// request creates a challenge as the platform does: the name consists of problem and user, and the spec repeats the
// namespace.
func (p *platform) request(ctx context.Context, definition string) *hexactfv1.Challenge {
	GinkgoHelper()
	user := "player-" + uuid.NewString()[:8]
	const problem = "17"
	challenge := &hexactfv1.Challenge{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.namespace, Name: "challenge-" + problem + "-" + user,
			Labels: map[string]string{hexactfv1.LabelChallengeID: problem, hexactfv1.LabelUser: user},
		},
		Spec: hexactfv1.ChallengeSpec{Definition: definition, Namespace: p.namespace},
	}
	Expect(world.Create(ctx, challenge)).To(Succeed())
	return challenge
}

// reaches waits for a state, and refreshes the challenge.
func reaches(ctx context.Context, c *hexactfv1.Challenge, state hexactfv1.State) {
	GinkgoHelper()
	expect.Refreshed(ctx, deployed.StartLimit, c, func() error {
		return deployed.ErrorIf(c.Status.CurrentStatus.State != state, fmt.Sprintf("state %s %q: %s",
			c.Status.CurrentStatus.State, c.Status.CurrentStatus.ErrorMsg, expect.Conditions(c)))
	})
}

func remove(ctx context.Context, c *hexactfv1.Challenge) {
	GinkgoHelper()
	Expect(world.Delete(ctx, c, client.Preconditions{UID: ptr.To(c.UID)})).To(Succeed())
}

func keyOf(c *hexactfv1.Challenge) string {
	return c.Labels[hexactfv1.LabelUser] + "-" + c.Labels[hexactfv1.LabelChallengeID]
}

// message has the fields that the platform's consumer reads, and those that the operator adds.
type message struct {
	User      string `json:"user"`
	ProblemID string `json:"problemId"`
	NewStatus string `json:"newStatus"`
	Timestamp string `json:"timestamp"`
	Endpoint  string `json:"endpoint"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Sequence  int64  `json:"sequence"`
}

// read reads a message as the platform's consumer does, which requires four fields and refuses unknown states.
func read(value string) (message, error) {
	var m message
	decoder := json.NewDecoder(strings.NewReader(value))
	decoder.DisallowUnknownFields() // the consumer does not do this; the documentation lists all fields
	if err := decoder.Decode(&m); err != nil {
		return m, fmt.Errorf("%q: %w", value, err)
	}
	if m.User == "" || m.ProblemID == "" || m.NewStatus == "" || m.Timestamp == "" {
		return m, fmt.Errorf("%q lacks a field", value)
	}
	if !slices.Contains([]string{creating, running, failed, deleted}, m.NewStatus) {
		return m, fmt.Errorf("%q has an unknown state", value)
	}
	if _, err := time.Parse(time.RFC3339Nano, m.Timestamp); err != nil {
		return m, fmt.Errorf("%q: %w", value, err)
	}
	return m, nil
}

// receivedBy are the messages about a challenge in order, each once: a repeat has the same bytes, and comes before the next
// message.
func receivedBy(all []broker.Message, c *hexactfv1.Challenge) ([]message, error) {
	var received []message
	var last string
	for _, record := range all {
		if record.Key != keyOf(c) {
			continue
		}
		if record.Value == last {
			continue
		}
		m, err := read(record.Value)
		if err != nil {
			return nil, err
		}
		if m.User != c.Labels[hexactfv1.LabelUser] || m.ProblemID != c.Labels[hexactfv1.LabelChallengeID] || m.UID != string(c.UID) || m.Name != c.Name || m.Namespace != c.Namespace {
			return nil, fmt.Errorf("%q is not about %s", record.Value, client.ObjectKeyFromObject(c))
		}
		if len(received) > 0 && m.Sequence <= received[len(received)-1].Sequence {
			return nil, fmt.Errorf("%q comes after %+v", record.Value, received[len(received)-1])
		}
		received, last = append(received, m), record.Value
	}
	return received, nil
}

func states(received []message) []string {
	var all []string
	for _, m := range received {
		all = append(all, m.NewStatus)
	}
	return all
}

// receives waits until these are the messages about a challenge, and returns them.
func receives(ctx context.Context, c *hexactfv1.Challenge, want ...string) []message {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, deployed.StartLimit)
	defer cancel()
	var received []message
	Expect(log.Await(ctx, func(all []broker.Message) (err error) {
		if received, err = receivedBy(all, c); err != nil {
			return err
		}
		return deployed.ErrorIf(!slices.Equal(states(received), want), fmt.Sprintf("the platform has received %v about %s, want %v", states(received), c.Name, want))
	})).To(Succeed())
	return received
}

// visits waits until a player finds the page of a challenge at a node port: the node's proxy may learn of the pod later than
// the operator.
func visits(ctx context.Context, port int32) {
	GinkgoHelper()
	expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		body, err := fetch(ctx, "http://"+world.AtNode(port)+"/")
		if err != nil {
			return err
		}
		return deployed.ErrorIf(!bytes.Contains(body, []byte("The Mountain Herald")), fmt.Sprintf("node port %d shows %q", port, body))
	})
}

// portOf is the endpoint in a message.
func portOf(m message) int32 {
	GinkgoHelper()
	port, err := strconv.ParseInt(m.Endpoint, 10, 32)
	Expect(err).NotTo(HaveOccurred(), "%+v has no endpoint", m)
	Expect(port).To(BeNumerically(">", 0), "%+v has no endpoint", m)
	return int32(port)
}
