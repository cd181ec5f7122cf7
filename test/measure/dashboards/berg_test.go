package dashboards

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/check"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
)

const (
	// arena is the namespace of Challenges and instances: CHALLENGE_NAMESPACE's default.
	arena = "berg"
	token = "a-token-for-the-platform"
	// neverPulled stands for solvers: their pods stay Pending until the test ends them, as the kubelet would.
	neverPulled = "berg.test/behaviour/image-pull:1"
)

// prepare makes what administrators make before they install the operator.
func prepare(ctx context.Context) {
	GinkgoHelper()
	Expect(client.IgnoreAlreadyExists(k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: arena}}))).To(Succeed())
	Expect(k8s.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: installed.Namespace, Name: "berg-api-tokens"},
		StringData: map[string]string{"platform": "endpoint: v1\ntoken: " + token + "\n"},
	})).To(Succeed())
	prepareBuilds(ctx)
}

// played are the Challenges that players choose from.
var played = []string{"guestbook", "kernel", "notes"}

// challenges are used by players who come in a wave, which the limit of instances holds back.
func (d *day) challenges(ctx context.Context) {
	GinkgoHelper()
	web := func(image string, more string) string {
		return fmt.Sprintf(`{flagFormat: "berg{...}", %s containers: [{hostname: web, image: %q, ports: [{name: web, port: 8080, type: publicHttpRoute}], dynamicFlag: {env: {name: FLAG}}}]}`, more, image)
	}
	bergtest.Challenge(ctx, arena, "guestbook", web("example.com/guestbook:1", "prepull: true,"))
	bergtest.Challenge(ctx, arena, "kernel", strings.Replace(web("example.com/kernel:1", ""), "publicHttpRoute", "publicPort", 1))
	bergtest.Challenge(ctx, arena, "notes", web("berg.test/behaviour/slow:1", ""))
	broken := bergtest.Challenge(ctx, arena, "broken", web("berg.test/behaviour/image-pull:2", "prepull: true,"))
	for _, name := range played {
		Expect(k8s.Create(ctx, &bergv1.ChallengeCheck{
			ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: name},
			Spec: bergv1.ChallengeCheckSpec{
				ChallengeRef: bergv1.ChallengeReference{Namespace: arena, Name: name},
				Solver:       bergv1.Solver{Image: neverPulled}, Timeout: "2m",
			},
		})).To(Succeed())
	}
	// One in six players gives the instance back, the others let it expire.
	play := func(ctx context.Context, n int) {
		i := bergtest.Instance(ctx, arena, played[n%len(played)], bergtest.WithTimeout("100s"))
		if n%6 == 5 {
			d.later(30*time.Second, i)
		}
	}
	d.every(7*time.Second, play)
	d.every(4*time.Second, func(ctx context.Context, n int) {
		if d.between(9, 13) {
			play(ctx, n)
		}
	})
	d.every(20*time.Second, func(ctx context.Context, _ int) {
		if d.between(14, 16) {
			d.later(d.length/8, bergtest.Instance(ctx, arena, "broken"))
			d.later(d.length/8, bergtest.Instance(ctx, arena, "removed"))
		}
	})
	// Authors publish another version now and then: its images are pulled, and it is checked.
	d.every(75*time.Second, func(ctx context.Context, n int) {
		c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: "guestbook"}}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		apiserver.Change(ctx, c, func() { c.Spec.Containers[0].Image = fmt.Sprintf("example.com/guestbook:%d", n+1) })
		if d.hour() > 19 {
			apiserver.Change(ctx, broken, func() { broken.Spec.Containers[0].Image = "example.com/corrected:1" })
		}
	})
	d.every(50*time.Second, func(ctx context.Context, n int) {
		c := &bergv1.ChallengeCheck{ObjectMeta: metav1.ObjectMeta{Namespace: arena, Name: played[n%len(played)]}}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		apiserver.Change(ctx, c, func() { c.Spec.Solver.Env = []bergv1.SolverVariable{{Name: "TURN", Value: fmt.Sprint(n)}} })
	})
	d.every(4*time.Second, func(ctx context.Context, _ int) { d.solve(ctx) })
}

// solve ends solvers that wait: as a kubelet says it of those that found the flag, and for a while of one that did not.
func (d *day) solve(ctx context.Context) {
	GinkgoHelper()
	var checks bergv1.ChallengeCheckList
	Expect(k8s.List(ctx, &checks, client.InNamespace(arena))).To(Succeed())
	for _, c := range checks.Items {
		var pods corev1.PodList
		Expect(k8s.List(ctx, &pods, client.InNamespace(check.NamespacePrefix+string(c.UID)))).To(Succeed())
		i := &bergv1.ChallengeInstance{}
		if len(pods.Items) == 0 || pods.Items[0].Status.Phase != corev1.PodPending || k8s.Get(ctx, client.ObjectKey{Namespace: arena, Name: "check-" + string(c.UID)}, i) != nil {
			continue
		}
		pod := &pods.Items[0]
		before := pod.DeepCopy()
		said := i.Spec.Flag
		if c.Name == "notes" && d.between(8, 17) {
			said = "there is no note"
		}
		now := metav1.Now()
		pod.Status.Phase = corev1.PodSucceeded
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", Message: said, StartedAt: pod.CreationTimestamp, FinishedAt: now}},
		}}
		_ = k8s.Status().Patch(ctx, pod, client.MergeFrom(before)) // the check may have been broken off
	}
}

// isolate makes the pod that the operator runs in, by its name, and plays a network plugin for its check: while a policy stands
// in the namespace of the check, pods there reach nothing.
func isolate(ctx context.Context) (stop func()) {
	GinkgoHelper()
	name, err := os.Hostname()
	Expect(err).NotTo(HaveOccurred())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: installed.Namespace},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "example.com/operator:1"}}},
	}
	// The ServiceAccount of a new namespace comes a moment later.
	Eventually(ctx, func() error { return k8s.Create(ctx, pod) }).Should(Succeed())
	own := &corev1.Namespace{}
	Expect(k8s.Get(ctx, client.ObjectKey{Name: installed.Namespace}, own)).To(Succeed())
	in := client.InNamespace("berg-isolation-check-" + string(own.UID))
	running, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for running.Err() == nil {
			var ours ciliumv2.CiliumNetworkPolicyList
			var others networkingv1.NetworkPolicyList
			var pods corev1.PodList
			if k8s.List(running, &ours, in) == nil && k8s.List(running, &others, in) == nil && k8s.List(running, &pods, in) == nil {
				behaviour := "ready"
				if len(ours.Items)+len(others.Items) > 0 {
					behaviour = "not-ready"
				}
				for _, pod := range pods.Items {
					_ = k8s.Patch(running, &pod, apiserver.RawPatch(`{"metadata":{"labels":{"berg.test/behaviour":"`+behaviour+`"}}}`)) // gone: the next round sees
				}
			}
			select {
			case <-running.Done():
			case <-time.After(apiserver.PollInterval):
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// platformAPI is berg-api as a process of its own. Its addresses are of this machine.
type platformAPI struct{ endpoint, metrics string }

func startAPI(ctx context.Context, folder string) *platformAPI {
	GinkgoHelper()
	a := &platformAPI{}
	var err error
	a.endpoint, err = launch.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	a.metrics, err = launch.FreeAddress()
	Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(folder, "berg-api")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/bergctf/berg-operator/cmd/berg-api").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	command := exec.Command(program)
	command.Env = append(os.Environ(), "PLATFORM_API=true", "BIND_ADDRESS="+a.endpoint, "METRICS_BIND_ADDRESS="+a.metrics, "PLATFORM_NAMESPACE="+arena, "BOOT_WAIT=5s")
	command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Expect(command.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // it is not what is looked at here
	})
	Eventually(ctx, func() error { return a.ask(http.MethodGet, "/v1/challenges", "") }).Should(Succeed())
	return a
}

// ask sends a request. Every answer will do: refusals are on the dashboard, too.
func (a *platformAPI) ask(method, path, body string) error {
	request, err := http.NewRequest(method, "http://"+a.endpoint+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// platform is one whose teams start instances and ask for them.
func (d *day) platform(a *platformAPI) {
	team := func(n int) string { return fmt.Sprintf("/v1/instances/guestbook/team-%d", n%9) }
	d.every(12*time.Second, func(_ context.Context, n int) {
		Expect(a.ask(http.MethodPut, team(n), `{"timeoutSeconds":90}`)).To(Succeed())
	})
	d.every(17*time.Second, func(_ context.Context, n int) { Expect(a.ask(http.MethodDelete, team(n), "")).To(Succeed()) })
	d.every(time.Second, func(_ context.Context, n int) {
		if n%4 == 0 || d.between(8, 14) {
			Expect(a.ask(http.MethodGet, team(n), "")).To(Succeed())
		}
	})
}
