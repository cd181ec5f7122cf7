package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
)

// steps is a Challenge whose instance has every kind of name that must outlive
// the operator: a hostname, a node port, a path with entropy.
const steps = `containers: [{hostname: web, image: "example.com/web:1", dynamicFlag: {content: {path: "/flag-{entropy}"}}, ports: [{port: 8080, type: publicHttpRoute}, {port: 1337, type: publicPort}]}]`

// maxWrites is more than an instance of steps ever needs, in one direction.
const maxWrites = 20

var _ = Describe("An operator that is killed", func() {
	It("after any write of a build continues where it was, and changes nothing that was reported", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "steps", steps)
		inprocess.Pause()

		var instances []*bergv1.ChallengeInstance
		var witnessed []facts
		for n := 1; ; n++ {
			Expect(n).To(BeNumerically("<", maxWrites), "an instance needs endless writes")
			// Each new operator also meets what its predecessors left half done.
			i := bergtest.Instance(ctx, ns, "steps", bergtest.NamedAfterOwner)
			instances = append(instances, i)
			died := startAndKill(ctx, i, n, func(g Gomega) {
				g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
				g.Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
			})
			witnessed = append(witnessed, witness(ctx, i))
			if !died {
				break
			}
		}
		Expect(len(instances)).To(BeNumerically(">", 10), "so many writes there must be")
		AddReportEntry("writes of a build", len(instances)-1)

		stop := inprocess.Run(nil, nil)
		defer stop()
		for n, i := range instances {
			expect.Reaches(ctx, i, bergv1.PhaseRunning)
			witnessed[n].expectIn(witness(ctx, i))
		}
	}, SpecTimeout(limits.Scaled(10*time.Minute)))

	It("after any write of a deletion leaves nothing behind", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "steps", steps)
		var instances []*bergv1.ChallengeInstance
		for range maxWrites / 2 {
			instances = append(instances, bergtest.Instance(ctx, ns, "steps", bergtest.NamedAfterOwner))
		}
		bergtest.AllRun(ctx, instances...)
		inprocess.Pause()
		n := 0
		for died := true; died; n++ {
			Expect(n).To(BeNumerically("<", len(instances)), "an instance needs endless writes")
			i := instances[n]
			Expect(k8s.Delete(ctx, i)).To(Succeed())
			died = startAndKill(ctx, i, n+1, func(g Gomega) {
				g.Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(i), i))).To(BeTrue())
			})
		}
		Expect(n).To(BeNumerically(">", 3), "so many writes there must be")
		AddReportEntry("writes of an end", n-1)
		stop := inprocess.Run(nil, nil)
		defer stop()
		for _, i := range instances[:n] {
			bergtest.Gone(ctx, i)
		}
	}, SpecTimeout(limits.Scaled(10*time.Minute)))

	It("by no signal, but without the response to any one write, builds and deletes nevertheless", func(ctx context.Context) {
		lost := buildAndEndOver(ctx, &line{}, func(instances []*bergv1.ChallengeInstance) {
			Expect(k8s.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(instances[0].Namespace))).To(Succeed())
		})
		Expect(lost).To(BeNumerically(">", 12), "answers that were lost")
	}, SpecTimeout(limits.Scaled(10*time.Minute)))

	It("by no signal, but with a conflict as the response to any one write, builds and deletes nevertheless", func(ctx context.Context) {
		refused := buildAndEndOver(ctx, &line{refuse: true}, func(instances []*bergv1.ChallengeInstance) {
			for n, i := range instances { // half of them by the operator's own deletion
				if n%2 == 0 {
					Expect(k8s.Delete(ctx, i)).To(Succeed())
				} else {
					Expect(k8s.Patch(ctx, i, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"timeout":"1s"}}`)))).To(Succeed())
				}
			}
		})
		Expect(refused).To(BeNumerically(">", 12), "writes that were refused")
	}, SpecTimeout(limits.Scaled(10*time.Minute)))
})

// buildAndEndOver has an operator build and end an instance for each of its writes, over a
// line that fails that write. It returns how many failed in the end.
func buildAndEndOver(ctx context.Context, l *line, end func([]*bergv1.ChallengeInstance)) int {
	GinkgoHelper()
	ns := bergtest.Publish(ctx, "steps", steps)
	inprocess.Pause()

	l.deaf, l.writes = map[string]int{}, map[string]int{}
	var instances []*bergv1.ChallengeInstance
	for n := 1; n < maxWrites; n++ {
		i := bergtest.Instance(ctx, ns, "steps", bergtest.NamedAfterOwner)
		l.deaf[i.Spec.OwnerID] = n
		instances = append(instances, i)
	}
	stop := inprocess.Run(nil, l.wrap)
	defer stop()
	for _, i := range instances {
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		facts{}.expectIn(witness(ctx, i))
	}
	l.reset()
	end(instances)
	bergtest.AllGone(ctx, instances...)
	return l.lost()
}

var errCut = errors.New("the line to the API server is cut")

// line is a connection to the API server that loses the answer to one write of
// an instance: the API server has done it, and the operator does not know.
type line struct {
	// deaf is, by owner, the number of the write whose answer is lost.
	deaf map[string]int
	// refuse makes the API server not hear of that write, and the operator of a conflict.
	refuse bool
	// kill, if given, is called then, and nothing passes any more.
	kill func()

	mu     sync.Mutex
	writes map[string]int
	losses int
	cut    bool
}

func (l *line) wrap(next http.RoundTripper) http.RoundTripper {
	return transport.Func(func(r *http.Request) (*http.Response, error) { return l.pass(next, r) })
}

func (l *line) pass(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	cut := l.cut
	l.mu.Unlock()
	if cut {
		return nil, errCut
	}
	owner, err := l.ownerOf(r)
	if err != nil {
		return nil, err
	}
	if owner != "" && l.refuse {
		l.mu.Lock()
		l.writes[owner]++
		refused := l.writes[owner] == l.deaf[owner]
		if refused {
			l.losses++
		}
		l.mu.Unlock()
		if refused {
			return transport.Refusal(r, http.StatusConflict, metav1.StatusReasonConflict, "another write was first"), nil
		}
		return next.RoundTrip(r)
	}
	response, err := next.RoundTrip(r)
	if owner == "" || err != nil || response.StatusCode >= http.StatusBadRequest {
		return response, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes[owner]++
	if l.writes[owner] != l.deaf[owner] {
		return response, nil
	}
	l.losses++
	if l.kill != nil {
		l.cut = true
		l.kill()
	}
	return nil, errors.Join(errCut, response.Body.Close())
}

// ownerOf returns whose instance a request writes, "" if it writes none.
func (l *line) ownerOf(r *http.Request) (string, error) {
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") {
		return "", nil
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return "", err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	for owner := range l.deaf {
		if strings.Contains(r.URL.Path, owner) || strings.HasSuffix(r.URL.Path, "/namespaces") && bytes.Contains(body, []byte(owner)) {
			return owner, nil
		}
	}
	return "", nil
}

func (l *line) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = map[string]int{}
}

func (l *line) lost() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.losses
}

// startAndKill runs an operator until its n-th write for an instance is done,
// and cuts it off before it hears of that. It reports false when done came true
// before.
func startAndKill(ctx context.Context, i *bergv1.ChallengeInstance, n int, done func(Gomega)) (died bool) {
	GinkgoHelper()
	living, kill := context.WithCancel(ctx)
	defer kill()
	l := &line{deaf: map[string]int{i.Spec.OwnerID: n}, writes: map[string]int{}, kill: kill}
	mgr := inprocess.Manager(living, clock.RealClock{}, nil, l.wrap)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(living) }()
	Eventually(func(g Gomega) {
		if living.Err() == nil {
			done(g)
		}
	}).Should(Succeed())
	died = living.Err() != nil
	kill()
	Eventually(ended).Should(Receive())
	return died
}

// facts are what has been told about an instance and must never change, and the
// objects that must never be made again.
type facts struct {
	reported map[string]string
	objects  map[string]types.UID
}

func witness(ctx context.Context, i *bergv1.ChallengeInstance) facts {
	GinkgoHelper()
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
	f := facts{reported: map[string]string{}, objects: map[string]types.UID{}}
	tell := func(key, value string) {
		if value != "" {
			f.reported[key] = value
		}
	}
	tell("instanceId", i.Status.InstanceID)
	if i.Status.StartedAt != nil {
		tell("startedAt", i.Status.StartedAt.String())
	}
	for _, s := range i.Status.Services {
		tell("endpoint "+s.Name, fmt.Sprint(s))
	}
	if i.Status.Namespace == "" || !bergtest.NamespaceExists(ctx, i) {
		return f
	}
	for _, o := range bergtest.Objects(ctx, i) {
		name := o.GetKind() + " " + o.GetName()
		f.objects[name] = o.GetUID()
		for _, path := range [][]string{{"spec", "hostnames"}, {"spec", "ports"}, {"binaryData"}, {"spec", "template"}} {
			if value, ok, _ := unstructured.NestedFieldNoCopy(o.Object, path...); ok {
				tell(name+" "+strings.Join(path, "."), fmt.Sprint(value))
			}
		}
	}
	pods := apiserver.List[corev1.PodList](ctx, client.InNamespace(i.Status.Namespace))
	for _, p := range pods.Items {
		f.objects["Pod "+p.Name] = p.UID
	}
	return f
}

// expectIn checks that all of it still holds, and that one pod runs.
func (f facts) expectIn(now facts) {
	GinkgoHelper()
	for key, value := range f.reported {
		Expect(now.reported).To(HaveKeyWithValue(key, value))
	}
	for name, uid := range f.objects {
		Expect(now.objects).To(HaveKeyWithValue(name, uid))
	}
	pods := 0
	for name := range now.objects {
		if strings.HasPrefix(name, "Pod ") {
			pods++
		}
	}
	Expect(pods).To(Equal(1), "pods")
	Expect(now.objects).To(HaveLen(pods + 7)) // policy, two Services, route, ConfigMap, budget, Deployment
}
