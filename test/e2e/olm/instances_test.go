package olm

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

const (
	// stage is the namespace of the Challenges and instances of this suite.
	stage = "olm-journeys"
	// quick starts immediately; absent has an image that is not there, and so is being
	// started for as long as it lives.
	quick  = "quick"
	absent = "absent"

	toolboxImage = "ghcr.io/bergctf/samples/toolbox:v0.1.0"
)

// createChallenges makes the stage.
func createChallenges(ctx context.Context) {
	GinkgoHelper()
	Expect(world.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stage}})).To(Succeed())
	for name, image := range map[string]string{quick: toolboxImage, absent: "ghcr.io/bergctf/samples/absent:v0.1.0"} {
		Expect(world.Create(ctx, &bergv1.Challenge{
			ObjectMeta: metav1.ObjectMeta{Namespace: stage, Name: name},
			Spec: bergv1.ChallengeSpec{Containers: []bergv1.Container{{
				Hostname:         "box",
				Image:            image,
				Ports:            []bergv1.Port{{Name: "echo", Port: 9000, Type: bergv1.PublicPort}},
				Environment:      map[string]bergv1.EnvironmentValue{"TOOLBOX_TCP": bergv1.StringValue(":9000")},
				ResourceRequests: &bergv1.Resources{CPU: ptr.To(bergv1.Amount("10m")), Memory: ptr.To(bergv1.Amount("16Mi"))},
				ResourceLimits:   &bergv1.Resources{CPU: ptr.To(bergv1.Amount("200m")), Memory: ptr.To(bergv1.Amount("64Mi"))},
			}}},
		})).To(Succeed())
	}
}

// start creates an instance for an owner of its own.
func start(ctx context.Context, challenge string) (client.ObjectKey, error) {
	owner := uuid.NewString()
	instance := &bergv1.ChallengeInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: stage, Name: "owner-" + owner},
		Spec: bergv1.ChallengeInstanceSpec{
			ChallengeRef: bergv1.ChallengeReference{Name: challenge, Namespace: stage},
			OwnerID:      owner,
			Flag:         "flag{olm-" + strings.ReplaceAll(owner, "-", "_") + "}",
			Timeout:      "1h",
		},
	}
	return client.ObjectKeyFromObject(instance), world.Create(ctx, instance)
}

// run starts an instance and waits until it runs.
func run(ctx context.Context) *bergv1.ChallengeInstance {
	GinkgoHelper()
	key, err := start(ctx, quick)
	Expect(err).NotTo(HaveOccurred())
	instance := &bergv1.ChallengeInstance{}
	expect.Until(ctx, instanceLimit, func(ctx context.Context) error { return inPhase(ctx, key, instance, bergv1.PhaseRunning) })
	return instance
}

func inPhase(ctx context.Context, key client.ObjectKey, instance *bergv1.ChallengeInstance, phase bergv1.Phase) error {
	if err := world.Get(ctx, key, instance); err != nil {
		return err
	}
	if instance.Status.Phase != phase {
		return fmt.Errorf("%s is %q, want %q", key.Name, instance.Status.Phase, phase)
	}
	return nil
}

// end deletes an instance and waits until nothing of it is left.
func end(ctx context.Context, key client.ObjectKey) {
	GinkgoHelper()
	instance := &bergv1.ChallengeInstance{}
	Expect(world.Get(ctx, key, instance)).To(Succeed())
	Expect(world.Delete(ctx, instance)).To(Succeed())
	expect.Until(ctx, instanceLimit, func(ctx context.Context) error { return endedWithNamespace(ctx, key) })
}

// namespaceOf an instance that start has made.
func namespaceOf(key client.ObjectKey) string {
	return "challenge-" + strings.TrimPrefix(key.Name, "owner-")
}

func endedWithNamespace(ctx context.Context, key client.ObjectKey) error {
	if err := gone(ctx, key, &bergv1.ChallengeInstance{}); err != nil {
		return err
	}
	return gone(ctx, client.ObjectKey{Name: namespaceOf(key)}, &corev1.Namespace{})
}

// audience follows instances that run, and sees everything that disturbs them.
type audience struct {
	instances map[client.ObjectKey]*bergv1.ChallengeInstance
	pods      map[client.ObjectKey][]corev1.Pod
	leave     func()
	left      sync.WaitGroup
	leaving   atomic.Bool
	mu        sync.Mutex
	seen      []string
}

// follow begins to watch the instances, which must run.
func follow(ctx context.Context, instances ...*bergv1.ChallengeInstance) *audience {
	GinkgoHelper()
	a := &audience{instances: map[client.ObjectKey]*bergv1.ChallengeInstance{}, pods: map[client.ObjectKey][]corev1.Pod{}}
	for _, instance := range instances {
		key := client.ObjectKeyFromObject(instance)
		a.instances[key] = instance
		var pods corev1.PodList
		Expect(world.List(ctx, &pods, client.InNamespace(instance.Status.Namespace))).To(Succeed())
		Expect(pods.Items).NotTo(BeEmpty())
		a.pods[key] = pods.Items
	}
	watch, err := world.Watch(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(stage))
	Expect(err).NotTo(HaveOccurred())
	a.leave = watch.Stop
	a.left.Go(func() {
		for event := range watch.ResultChan() {
			now, ok := event.Object.(*bergv1.ChallengeInstance)
			if !ok && a.leaving.Load() {
				// A watch that is stopped ends with an error.
				return
			}
			if !ok {
				a.note("the watch of the instances ended: %v", event.Object)
				return
			}
			before := a.instances[client.ObjectKeyFromObject(now)]
			if before != nil && (now.DeletionTimestamp != nil || now.Status.Phase != bergv1.PhaseRunning || now.Status.InstanceID != before.Status.InstanceID) {
				a.note("%s %s: %+v", event.Type, now.Name, now.Status)
			}
		}
	})
	return a
}

func (a *audience) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, fmt.Sprintf(format, args...))
}

// expectUnaffected expects every instance as it was from the beginning on, with
// the same pods and no container of them restarted.
func (a *audience) expectUnaffected(ctx context.Context) {
	GinkgoHelper()
	a.leaving.Store(true)
	a.leave()
	a.left.Wait()
	Expect(a.seen).To(BeEmpty())
	for key, before := range a.instances {
		now := &bergv1.ChallengeInstance{}
		Expect(world.Get(ctx, key, now)).To(Succeed())
		Expect(now.Status.Services).To(Equal(before.Status.Services))
		Expect(now.Status.StartedAt).To(Equal(before.Status.StartedAt))
		Expect(now.Status.ExpiresAt).To(Equal(before.Status.ExpiresAt))
		var pods corev1.PodList
		Expect(world.List(ctx, &pods, client.InNamespace(now.Status.Namespace))).To(Succeed())
		Expect(pods.Items).To(HaveLen(len(a.pods[key])))
		for _, pod := range a.pods[key] {
			same := &corev1.Pod{}
			Expect(world.Get(ctx, client.ObjectKeyFromObject(&pod), same)).To(Succeed())
			Expect(same.UID).To(Equal(pod.UID))
			for _, c := range same.Status.ContainerStatuses {
				Expect(c.RestartCount).To(BeZero(), "container %s of %s/%s", c.Name, pod.Namespace, pod.Name)
			}
		}
	}
}

// crowd starts instances and ends them again, one after the other, until told
// to leave.
type crowd struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	ended  int
	errs   []error
}

// bustle lets so many players come and go.
func bustle(ctx context.Context, players int) *crowd {
	c := &crowd{}
	var walk context.Context
	walk, c.cancel = context.WithCancel(ctx)
	for range players {
		c.done.Go(func() {
			defer GinkgoRecover()
			for walk.Err() == nil {
				// A visit that has begun is finished.
				err := visit(ctx)
				c.mu.Lock()
				if err == nil {
					c.ended++
				} else {
					c.errs = append(c.errs, err)
				}
				c.mu.Unlock()
			}
		})
	}
	return c
}

// visit is the whole life of one instance.
func visit(ctx context.Context) error {
	key, err := start(ctx, quick)
	if err != nil {
		return fmt.Errorf("create %s: %w", key.Name, err)
	}
	instance := &bergv1.ChallengeInstance{}
	if err := within(ctx, func(ctx context.Context) error { return inPhase(ctx, key, instance, bergv1.PhaseRunning) }); err != nil {
		return err
	}
	if err := world.Delete(ctx, instance); err != nil {
		return fmt.Errorf("delete %s: %w", key.Name, err)
	}
	return within(ctx, func(ctx context.Context) error { return endedWithNamespace(ctx, key) })
}

// finished returns how many visits have come to their end.
func (c *crowd) finished() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// expectServed ends the starts and deletions and expects that every player got what they
// came for.
func (c *crowd) expectServed() {
	GinkgoHelper()
	c.cancel()
	c.done.Wait()
	Expect(c.errs).To(BeEmpty())
}
