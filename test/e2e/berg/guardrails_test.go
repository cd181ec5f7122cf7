package berg

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	// pulsePace is how often the neighbour is asked.
	pulsePace = 10 * time.Millisecond
	// pulseWindow is what one p99 is taken of: 250 answers.
	pulseWindow = 250 * pulsePace
	// calmWindows and badWindows are how many are compared.
	calmWindows, badWindows = 3, 4
	// crowding is what an answer may take longer on top of half as much again as next to an
	// instance that merely computes. That one may use a whole processor by default, and the
	// test cluster's machine has two, for the control plane and this test too. So this finds
	// a neighbour that starves; the report tells the ratios.
	crowding = 500 * time.Millisecond
)

// evictionLimit is twice what the kubelet takes to notice a full disk: it measures
// disks every ten seconds, and looks at what it measured every ten.
var evictionLimit = limits.Scaled(40 * time.Second)

var _ = Describe("A player who takes all that a pod can have", Ordered, func() {
	var (
		stage     *journey.Stage
		neighbour *neighbour
	)
	BeforeAll(func(ctx SpecContext) {
		stage = journey.NewStage(ctx)
		neighbour = startNeighbour(ctx, stage)
		// All that holds this container is what the operator gives by default.
		stage.Challenge(ctx, "greedy", bergv1.Container{Hostname: "box", Image: deployed.ToolboxImage})
	}, NodeTimeout(deployed.SpecLimit))

	// attack lets a player take one thing for a while, when it is known from the taker's words
	// that it has begun, and returns the neighbour's p99 during it.
	attack := func(ctx context.Context, pod client.ObjectKey, of, what, says string, why ...any) time.Duration {
		GinkgoHelper()
		return neighbour.expectUnharmed(ctx, of, func() time.Time {
			said := exhaust(ctx, pod, what)
			Eventually(ctx, said).WithTimeout(deployed.ReactLimit).Should(gbytes.Say(says), why...)
			begun := time.Now()
			passTime(ctx, badWindows*pulseWindow)
			return begun
		})
	}

	It("computes, as it may", func(ctx SpecContext) {
		reported, pod := startGreedy(ctx, stage)
		neighbour.computing = attack(ctx, pod, "computing", "processor", "computing\n")
		reported.Delete(ctx)
		reported.ExpectEnd(ctx)
	}, SpecTimeout(deployed.SpecLimit))

	It("gets no more processes than the node allows", func(ctx SpecContext) {
		reported, pod := startGreedy(ctx, stage)
		attack(ctx, pod, "fork bomb", "processes", "refused: resource temporarily unavailable\n",
			"podPidsLimit of the kubelet bounds the processes of a pod")
		reported.Delete(ctx)
		reported.ExpectEnd(ctx)
	}, SpecTimeout(deployed.SpecLimit))

	It("gets no more memory than its limit", func(ctx SpecContext) {
		reported, pod := startGreedy(ctx, stage)
		attack(ctx, pod, "full memory", "memory", "signal: killed\n")
		expect.Until(ctx, deployed.StartLimit, func(context.Context) error { return journey.Unhappy(reported.Now()) })
		reported.Delete(ctx)
		reported.ExpectEnd(ctx)
	}, SpecTimeout(deployed.SpecLimit))

	It("gets no more of the disk than its limit", func(ctx SpecContext) {
		limit := resource.MustParse(setting("CHALLENGE_EPHEMERAL_STORAGE_LIMIT"))
		reported, pod := startGreedy(ctx, stage)
		neighbour.expectUnharmed(ctx, "full disk", func() time.Time {
			begun := time.Now()
			written, err := world.ExecIn(ctx, pod, "", "exhaust", "disk", "/full", strconv.FormatInt(limit.Value()+limit.Value()/8, 10))
			Expect(err).NotTo(HaveOccurred())
			Expect(written.Stdout).To(HaveSuffix("bytes written\n"))
			expect.Until(ctx, evictionLimit, func(ctx context.Context) error {
				// The pod itself does not tell, when its program ends well on being asked to.
				var events corev1.EventList
				if err := world.List(ctx, &events, client.InNamespace(pod.Namespace)); err != nil {
					return err
				}
				return deployed.ErrorIf(!slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
					return e.Reason == "Evicted" && e.InvolvedObject.Name == pod.Name && strings.Contains(e.Message, "ephemeral local storage")
				}), "the pod was not evicted")
			})
			return begun
		})

		By("restarting, with an empty disk")
		reported.Expect(ctx, deployed.ReactLimit, "moment of bad health", func(m journey.Moment) bool {
			return meta.IsStatusConditionFalse(m.Instance.Status.Conditions, bergv1.ConditionHealthy)
		})
		expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) error {
			pods, err := world.Pods(ctx, reported.InstanceNamespace(), client.MatchingLabels{bergv1.LabelContainer: "box"})
			if err != nil {
				return err
			}
			return deployed.ErrorIf(!slices.ContainsFunc(pods, func(p corev1.Pod) bool { return p.Name != pod.Name && deployed.PodReady(&p) }), "no pod took its place")
		})
	}, SpecTimeout(deployed.SpecLimit))
})

// startGreedy starts an instance of the Challenge greedy and returns its pod too.
func startGreedy(ctx context.Context, s *journey.Stage) (*journey.Story, client.ObjectKey) {
	GinkgoHelper()
	reported := s.Start(ctx, s.Instance("greedy"))
	running := reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
	pods, err := world.Pods(ctx, running.Status.Namespace, client.MatchingLabels{bergv1.LabelContainer: "box"})
	Expect(err).NotTo(HaveOccurred())
	Expect(pods).To(HaveLen(1))
	return reported, client.ObjectKeyFromObject(&pods[0])
}

// exhaust takes what a pod has until the pod ends, and returns what the taker says.
func exhaust(ctx context.Context, pod client.ObjectKey, what string) *gbytes.Buffer {
	said := gbytes.NewBuffer()
	go func() {
		_ = world.Stream(ctx, pod, remotecommand.StreamOptions{Stdout: said, Stderr: said}, "exhaust", what)
	}()
	return said
}

// neighbour is an instance that is asked all the time, as many players would.
type neighbour struct {
	*journey.Story
	pod types.UID
	// computing is its p99 next to an instance that merely computes, zero before that was tried.
	computing time.Duration

	mutex sync.Mutex
	beats []beat
}

// beat is one answer of the neighbour.
type beat struct {
	at   time.Time
	took time.Duration
	err  error
}

// startNeighbour starts one, and measures it undisturbed.
func startNeighbour(ctx context.Context, s *journey.Stage) *neighbour {
	GinkgoHelper()
	s.Challenge(ctx, "neighbour", bergv1.Container{
		Hostname: "web", Image: deployed.ToolboxImage, Ports: []bergv1.Port{newPort("web", 8080, bergv1.PublicPort)},
		Environment: map[string]bergv1.EnvironmentValue{"TOOLBOX_HTTP": bergv1.StringValue(":8080")},
	})
	n := &neighbour{Story: s.Start(ctx, s.Instance("neighbour"))}
	running := n.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
	pod, err := n.onlyPod(ctx)
	Expect(err).NotTo(HaveOccurred())
	n.pod = pod.UID

	// A connection for each request, as the first one of each player is.
	player := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	url := "http://" + world.AtNode(endpoint(running, "web").Port) + "/healthz"
	expect.Until(ctx, deployed.ReactLimit, func(context.Context) error { return ask(player, url) })
	stop := make(chan struct{})
	var asked sync.WaitGroup
	asked.Go(func() {
		ticker := time.NewTicker(pulsePace)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case at := <-ticker.C:
				// Each on its own: a slow one must not keep the next from being asked.
				asked.Go(func() {
					err := ask(player, url)
					n.mutex.Lock()
					defer n.mutex.Unlock()
					n.beats = append(n.beats, beat{at, time.Since(at), err})
				})
			}
		}
	})
	DeferCleanup(func() {
		close(stop)
		asked.Wait()
	})
	return n
}

func ask(player *http.Client, url string) error {
	response, err := player.Get(url)
	if err != nil {
		return err
	}
	return errors.Join(response.Body.Close(), deployed.ErrorIf(response.StatusCode != http.StatusOK, response.Status))
}

func (n *neighbour) onlyPod(ctx context.Context) (*corev1.Pod, error) {
	pods, err := world.Pods(ctx, n.InstanceNamespace(), nil)
	if err != nil {
		return nil, err
	}
	if len(pods) != 1 {
		return nil, fmt.Errorf("the neighbour has %d pods, want 1", len(pods))
	}
	return &pods[0], nil
}

// p99 returns the 99th percentile of each window since then. It is an error if a request failed.
func (n *neighbour) p99(since time.Time) ([]time.Duration, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	var windows [][]time.Duration
	for _, b := range n.beats {
		if b.at.Before(since) {
			continue
		}
		if b.err != nil {
			return nil, fmt.Errorf("a request to the neighbour failed after %s: %w", b.took, b.err)
		}
		i := int(b.at.Sub(since) / pulseWindow)
		for len(windows) <= i {
			windows = append(windows, nil)
		}
		windows[i] = append(windows[i], b.took)
	}
	var all []time.Duration
	for _, w := range windows {
		if len(w) < 100 {
			continue // the last one, cut short
		}
		slices.Sort(w)
		all = append(all, w[len(w)*99/100].Round(100*time.Microsecond))
	}
	if len(all) == 0 {
		return nil, errors.New("the neighbour was not asked for long enough")
	}
	slices.Sort(all)
	return all, nil
}

// typical is the lower median of sorted windows: what an attack does shows in each of them,
// what else the machine does for a moment in some.
func typical(windows []time.Duration) time.Duration { return windows[(len(windows)-1)/2] }

// expectUnharmed runs an attack, which returns when it began, and compares the neighbour's p99,
// which it returns, with what it was before.
func (n *neighbour) expectUnharmed(ctx context.Context, of string, attack func() (begun time.Time)) time.Duration {
	GinkgoHelper()
	before := time.Now()
	passTime(ctx, calmWindows*pulseWindow)
	calm, err := n.p99(before)
	Expect(err).NotTo(HaveOccurred())
	begun := attack()
	disturbed, err := n.p99(begun)
	Expect(err).NotTo(HaveOccurred())
	usual, now := typical(calm), typical(disturbed)
	allowed := max(usual, n.computing)
	AddReportEntry(of, fmt.Sprintf("p99 of the neighbour %s, undisturbed %s, ratio %.2f; next to one that computes %s, ratio %.2f; windows of %s: %v, undisturbed %v",
		now, usual, float64(now)/float64(usual), n.computing, float64(now)/float64(allowed), pulseWindow, disturbed, calm))
	Expect(now).To(BeNumerically("<=", allowed*3/2+crowding), "p99 of the neighbour, undisturbed it is %s, next to one that computes %s", usual, n.computing)

	pod, err := n.onlyPod(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(pod.UID).To(Equal(n.pod), "the neighbour's pod was replaced")
	Expect(deployed.PodReady(pod)).To(BeTrue(), "the neighbour's pod is not ready")
	Expect(pod.Status.ContainerStatuses).To(HaveEach(HaveField("RestartCount", BeZero())))
	for _, m := range n.Moments() {
		if m.At.After(begun) {
			Expect(meta.IsStatusConditionFalse(m.Instance.Status.Conditions, bergv1.ConditionHealthy)).To(BeFalse(), journey.Summary(m.Instance))
		}
	}
	return now
}

// passTime lets the neighbour be asked for a while.
func passTime(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	select {
	case <-time.After(d):
	case <-ctx.Done():
		Fail("interrupted")
	}
}
