package tunnel

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/kube"
	"github.com/bergctf/berg-operator/test/cluster/progress"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/transport"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

// fate is the expected state of a pair after the storm.
type fate int

const (
	lives fate = iota
	ended      // a proxy of it was killed
	gone       // it was deleted
)

// stormPair is a pair in the storm.
type stormPair struct {
	*tunnelv1.ContainerNetworkTunnelProxy
	fate fate
	// stream is a client's connection that was made in the storm; nil before.
	stream net.Conn
}

// retried retries until it works, because the API server may be down.
func retried(do func() error) {
	GinkgoHelper()
	Eventually(do).Should(Succeed())
}

// restartAPIServer kills the API server of the cluster and starts it again.
func restartAPIServer(ctx context.Context) {
	GinkgoHelper()
	places, err := disk.Find()
	Expect(err).NotTo(HaveOccurred())
	name := filepath.Base(filepath.Dir(filepath.Dir(os.Getenv("KUBECONFIG"))))
	Expect(kube.Restart(ctx, places, kube.Options{Name: name, Timeout: limits.Wait}, "kube-apiserver", progress.New(GinkgoWriter))).To(Succeed())
}

// TUNNEL_LIVES is how many pairs live in the storm: few, unless it says otherwise, as make
// chaos-tunnel does, which has the API server restarted too (TUNNEL_API_RESTARTS). The seed of a
// run is that of Ginkgo.
var _ = Describe("While operators, proxies and the API server fail,", Serial, func() {
	It("tunnels are created, changed and deleted, nothing is lost, nothing is left, and no foreign object is touched", func(ctx context.Context) {
		count, err := strconv.Atoi(cmp.Or(os.Getenv("TUNNEL_LIVES"), "10"))
		Expect(err).NotTo(HaveOccurred())
		restarts, err := strconv.Atoi(cmp.Or(os.Getenv("TUNNEL_API_RESTARTS"), "0"))
		Expect(err).NotTo(HaveOccurred())
		chance := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		about := transport.NewWeather(GinkgoRandomSeed())
		networks := []*tunnelv1.ContainerNetwork{tunneltest.Network(ctx), tunneltest.Network(ctx)}
		servers := []int32{tunneltest.NewEcho(0).Port, tunneltest.NewEcho(0).Port}

		By("making objects that must not be touched")
		foreign := &corev1.Secret{}
		foreign.Namespace, foreign.Name = networks[0].Status.NetworkName, "foreign"

		var all []*stormPair
		refresh := func(s *stormPair) (there bool) {
			retried(func() error {
				err := k8s.Get(ctx, client.ObjectKeyFromObject(s), s.ContainerNetworkTunnelProxy)
				there = err == nil
				return client.IgnoreNotFound(err)
			})
			return there
		}
		change := func(s *stormPair, how func(*tunnelv1.ContainerNetworkTunnelProxySpec)) {
			retried(func() error {
				if err := k8s.Get(ctx, client.ObjectKeyFromObject(s), s.ContainerNetworkTunnelProxy); err != nil {
					return err
				}
				how(&s.Spec)
				return k8s.Update(ctx, s.ContainerNetworkTunnelProxy)
			})
		}
		addPair := func() {
			p := tunneltest.NewProxy(networks[chance.IntN(len(networks))].Name, tunneltest.To("web", servers[chance.IntN(len(servers))]))
			retried(func() error {
				err := k8s.Create(ctx, p)
				if apierrors.IsAlreadyExists(err) {
					return nil // the answer to an attempt was lost
				}
				return err
			})
			all = append(all, &stormPair{ContainerNetworkTunnelProxy: p})
			DeferCleanup(func(ctx context.Context) { tunneltest.Delete(ctx, p) })
		}
		connect := func(s *stormPair) {
			for _, t := range s.Status.TunnelStatuses {
				if t.Name == "web" && t.State == tunnelv1.TunnelReady && s.stream == nil {
					c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(t.ClientProxyPort))), 5*time.Second)
					if err != nil {
						return // it is another one by now
					}
					if answer, err := tunneltest.Exchange(c, "hello"); err != nil || answer != "hello" {
						_ = c.Close()
						return
					}
					s.stream = c
					DeferCleanup(func() { _ = c.Close() })
				}
			}
		}
		happens := map[string]int{}
		something := func(s *stormPair) {
			if s.fate != lives || !refresh(s) {
				return
			}
			runs := s.Status.State == tunnelv1.StateRunning
			if runs {
				connect(s)
			}
			what := [...]string{"redefined", "redefined", "added", "removed", "deleted", "server proxy killed", "client proxy killed", "pod deleted", "", ""}[chance.IntN(10)]
			switch {
			case what == "redefined":
				change(s, func(spec *tunnelv1.ContainerNetworkTunnelProxySpec) {
					for i := range spec.Tunnels {
						spec.Tunnels[i].ServerPort = servers[chance.IntN(len(servers))]
					}
				})
			case what == "added":
				name := fmt.Sprint("more-", chance.IntN(1000))
				change(s, func(spec *tunnelv1.ContainerNetworkTunnelProxySpec) {
					for _, t := range spec.Tunnels {
						if t.Name == name {
							return
						}
					}
					spec.Tunnels = append(spec.Tunnels, tunneltest.To(name, servers[0]))
				})
			case what == "removed":
				change(s, func(spec *tunnelv1.ContainerNetworkTunnelProxySpec) { spec.Tunnels = spec.Tunnels[:1] })
			case what == "deleted":
				s.fate = gone
				retried(func() error { return client.IgnoreNotFound(k8s.Delete(ctx, s.ContainerNetworkTunnelProxy)) })
			// A pair that has never run is started again; one that has run fails with its proxies.
			case what == "server proxy killed" && runs && s.Status.ServerProxyProcessID != nil:
				s.fate = ended
				_ = syscall.Kill(int(*s.Status.ServerProxyProcessID), syscall.SIGKILL)
			case what == "client proxy killed" && runs:
				s.fate = ended
				kubelet.Kill(ctx, s.ContainerNetworkTunnelProxy)
			case what == "pod deleted" && runs:
				s.fate = ended
				pod := tunneltest.ClientPod(ctx, s.ContainerNetworkTunnelProxy)
				retried(func() error { return client.IgnoreNotFound(k8s.Delete(ctx, pod)) })
			default:
				return
			}
			happens[what]++
		}

		By("the storm")
		deaths := 0
		for turn := 0; len(all) < count || turn < 6; turn++ {
			m := transport.NewKill(1+chance.Int64N(60), false, concerns)
			stop := inprocess.Instead(clock.RealClock{}, nil, func(next http.RoundTripper) http.RoundTripper { return m.Wrap(about.Wrap(next)) })
			about.Blows.Store(true)
			for range min(count-len(all), 1+chance.IntN(4)) {
				addPair()
			}
			if foreign.UID == "" {
				// It looks like an object of a pair.
				foreign.Labels = map[string]string{tunnelv1.LabelProxy: string(all[0].UID), tunnelv1.LabelRole: tunnelv1.RoleServer}
				retried(func() error { return k8s.Create(ctx, foreign) })
			}
			if restarts > 0 && chance.IntN(3) == 0 {
				restarts--
				happens["API server restarted"]++
				restartAPIServer(ctx)
			}
			for _, s := range all {
				if chance.IntN(3) == 0 {
					something(s)
				}
			}
			select {
			case <-m.Dead:
				deaths++
			case <-time.After(time.Duration(500+chance.IntN(3500)) * time.Millisecond):
			}
			about.Blows.Store(false)
			stop()
		}
		AddReportEntry("the storm", fmt.Sprintf("%d pairs, %v; operators cut off at a write: %d; requests refused: %d; answers lost: %d",
			len(all), happens, deaths, about.Spoilt.Load(), about.Lost.Load()))

		By("after the storm")
		inprocess.Instead(clock.RealClock{}, nil, nil)
		for _, s := range all {
			switch s.fate {
			case lives:
				tunneltest.Reaches(ctx, s.ContainerNetworkTunnelProxy, tunnelv1.StateRunning)
				for _, t := range s.Spec.Tunnels {
					through(tunneltest.Tunnel(ctx, s.ContainerNetworkTunnelProxy, t.Name, tunnelv1.TunnelReady).ClientProxyPort)
				}
				Expect(s.Status.TunnelStatuses).To(HaveLen(len(s.Spec.Tunnels)))
				if s.stream != nil {
					answer, err := tunneltest.Exchange(s.stream, "still here")
					Expect(err).NotTo(HaveOccurred(), "a stream of a pair that runs was lost")
					Expect(answer).To(Equal("still here"))
				}
			case ended:
				tunneltest.Reaches(ctx, s.ContainerNetworkTunnelProxy, tunnelv1.StateFailed)
				ours := func() []string { return without(leftOf(ctx, s.ContainerNetworkTunnelProxy), foreign.Name) }
				Eventually(ours).Should(BeEmpty())
			case gone:
				expect.Gone(ctx, s.ContainerNetworkTunnelProxy)
			}
		}

		By("deleting all")
		for _, s := range all {
			tunneltest.Delete(ctx, s.ContainerNetworkTunnelProxy)
			Eventually(func() []string { return without(leftOf(ctx, s.ContainerNetworkTunnelProxy), foreign.Name) }).Should(BeEmpty())
		}
		Eventually(func() ([]string, error) { return filepath.Glob(filepath.Join(processes, "*", "*")) }).Should(BeEmpty(), "files of server proxies")
		untouched := apiserver.Get[corev1.Secret](ctx, client.ObjectKeyFromObject(foreign))
		Expect(untouched.ResourceVersion).To(Equal(foreign.ResourceVersion))
	}, SpecTimeout(time.Hour))
})

// without returns all names but one.
func without(names []string, name string) (others []string) {
	for _, n := range names {
		if n != name {
			others = append(others, n)
		}
	}
	return others
}
