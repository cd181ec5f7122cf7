// Package tunneltest makes container networks and tunnels for the specs of every suite, and
// stands in for the kubelet where nodes are simulated: client proxies are real processes.
package tunneltest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// ProgramPackage is the proxy's main package.
const ProgramPackage = "github.com/bergctf/berg-operator/cmd/berg-tunnel"

// LabelOperator with the value allowed lets the operator create proxies in a namespace that it did not make.
const LabelOperator = "usvc-dev.developer.microsoft.com/operator"

// Existing creates a namespace for networks that make none.
func Existing(ctx context.Context) string {
	GinkgoHelper()
	ns := apiserver.Namespace(ctx)
	apiserver.LabelNamespace(ctx, ns, LabelOperator, "allowed")
	return ns
}

// Program builds the proxy into a folder and returns its path.
func Program(ctx context.Context, folder string) string {
	GinkgoHelper()
	path := filepath.Join(folder, "berg-tunnel")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, ProgramPackage)
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return path
}

// Kubelet runs the client proxies of simulated pods as processes, at the ports of the loopback
// that TUNNEL_PUBLISH=HostPort gives them.
type Kubelet struct {
	program, folder string
	client          client.WithWatch
	mu              sync.Mutex
	processes       map[types.UID]*exec.Cmd
	refuse          bool
}

// NewKubelet starts one, until stop is called.
func NewKubelet(c client.WithWatch, program, folder string) (k *Kubelet, stop func()) {
	GinkgoHelper()
	k = &Kubelet{program: program, folder: folder, client: c, processes: map[types.UID]*exec.Cmd{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			k.watch(ctx)
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, p := range k.processes {
			_ = p.Process.Kill()
		}
	}()
	return k, func() { cancel(); <-done }
}

// Hold has new pods run nothing until release is called.
func (k *Kubelet) Hold() (release func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = true
	release = func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.refuse = false
	}
	DeferCleanup(release)
	return release
}

// Kill ends the client proxy of a pair as SIGKILL does.
func (k *Kubelet) Kill(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) {
	GinkgoHelper()
	pod := ClientPod(ctx, p)
	k.mu.Lock()
	defer k.mu.Unlock()
	Expect(k.processes).To(HaveKey(pod.UID))
	Expect(k.processes[pod.UID].Process.Kill()).To(Succeed())
}

func (k *Kubelet) watch(ctx context.Context) {
	ours := client.MatchingLabels{tunnelv1.LabelRole: tunnelv1.RoleClient}
	var pods corev1.PodList
	err := k.client.List(ctx, &pods, ours)
	var w watch.Interface
	if err == nil {
		// Pods may have been deleted while no watch was open.
		k.endOthers(pods.Items)
		w, err = k.client.Watch(ctx, &corev1.PodList{}, ours)
	}
	if err != nil {
		pause(ctx)
		return
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-w.ResultChan():
			if !open {
				return
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				return
			}
			if event.Type == watch.Deleted || pod.DeletionTimestamp != nil {
				k.end(pod.UID)
			} else if pod.Status.Phase == corev1.PodRunning {
				k.run(ctx, pod)
			}
		}
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(apiserver.PollInterval):
	}
}

// endOthers ends the processes of all pods but these.
func (k *Kubelet) endOthers(pods []corev1.Pod) {
	there := map[types.UID]bool{}
	for _, pod := range pods {
		there[pod.UID] = true
	}
	k.mu.Lock()
	var gone []types.UID
	for uid := range k.processes {
		if !there[uid] {
			gone = append(gone, uid)
		}
	}
	k.mu.Unlock()
	for _, uid := range gone {
		k.end(uid)
	}
}

func (k *Kubelet) end(pod types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.processes[pod]; p != nil {
		_ = p.Process.Signal(os.Interrupt)
	}
}

func (k *Kubelet) run(ctx context.Context, pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.processes[pod.UID] != nil || k.refuse {
		return
	}
	if v := pod.Spec.Volumes; len(v) == 0 || v[0].Secret == nil {
		return // it has no certificates, so it is no proxy
	}
	dir := filepath.Join(k.folder, string(pod.UID))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return
	}
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Spec.Volumes[0].Secret.SecretName}
	for k.client.Get(ctx, name, secret) != nil || project(dir, secret) != nil {
		if pause(ctx); ctx.Err() != nil {
			return
		}
	}
	ports := pod.Spec.Containers[0].Ports
	// A node gives a port to another pod only when the one before has ended; here that one may still drain, though its object is gone.
	for begin := time.Now(); !free(ports[0].HostPort, ports[1].HostPort) && time.Since(begin) < drained; {
		if pause(ctx); ctx.Err() != nil {
			return
		}
	}
	cmd := exec.Command(k.program, "client", "--tls-dir="+dir,
		"--client-control-address=127.0.0.1", "--client-control-port="+strconv.Itoa(int(ports[0].HostPort)),
		"--client-data-address=127.0.0.1", "--client-data-port="+strconv.Itoa(int(ports[1].HostPort)), "--peer-grace=2s")
	cmd.Stderr = GinkgoWriter
	if err := cmd.Start(); err != nil {
		return
	}
	k.processes[pod.UID] = cmd
	running, ended := context.WithCancel(ctx)
	go func() {
		for running.Err() == nil {
			k.follow(running, dir, secret)
			pause(running)
		}
	}()
	go func() {
		_ = cmd.Wait()
		ended()
		status := fmt.Sprintf(`{"status":{"phase":"Failed","containerStatuses":[{"name":"client-proxy","image":"x","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":%d,"reason":"Error"}}}]}}`,
			max(cmd.ProcessState.ExitCode(), 0))
		for ctx.Err() == nil {
			err := k.client.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(status)))
			if client.IgnoreNotFound(err) == nil {
				return
			}
			pause(ctx)
		}
	}()
}

// drained is longer than a proxy takes to end. A port that is in use then belongs to another program.
const drained = 20 * time.Second

// free reports whether nothing listens at ports of the loopback.
func free(ports ...int32) bool {
	for _, port := range ports {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		if err != nil {
			return false
		}
		_ = listener.Close()
	}
	return true
}

// follow writes the files of a Secret to a folder whenever they change.
func (k *Kubelet) follow(ctx context.Context, dir string, secret *corev1.Secret) {
	w, err := k.client.Watch(ctx, &corev1.SecretList{}, client.InNamespace(secret.Namespace), client.MatchingFields{"metadata.name": secret.Name})
	if err != nil {
		return
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-w.ResultChan():
			if !open {
				return
			}
			if changed, ok := event.Object.(*corev1.Secret); ok && event.Type != watch.Deleted {
				_ = project(dir, changed)
			}
		}
	}
}

// project writes the files of a Secret, each atomically.
func project(dir string, secret *corev1.Secret) error {
	for file, content := range secret.Data {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path+".next", content, 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".next", path); err != nil {
			return err
		}
	}
	return nil
}

// Network creates a container network and waits until it runs. It is deleted at the end of the spec.
func Network(ctx context.Context, modify ...func(*tunnelv1.ContainerNetwork)) *tunnelv1.ContainerNetwork {
	GinkgoHelper()
	n := NewNetwork(modify...)
	Expect(apiserver.Client.Create(ctx, n)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Delete(ctx, n) })
	NetworkReaches(ctx, n, tunnelv1.NetworkRunning)
	return n
}

// NewNetwork returns one that was not created yet.
func NewNetwork(modify ...func(*tunnelv1.ContainerNetwork)) *tunnelv1.ContainerNetwork {
	n := &tunnelv1.ContainerNetwork{ObjectMeta: metav1.ObjectMeta{Name: "net-" + uuid.NewString()[:8]}}
	for _, m := range modify {
		m(n)
	}
	return n
}

// Proxy creates a pair of proxies in a network. It is deleted at the end of the spec.
func Proxy(ctx context.Context, network string, tunnels ...tunnelv1.TunnelConfiguration) *tunnelv1.ContainerNetworkTunnelProxy {
	GinkgoHelper()
	p := NewProxy(network, tunnels...)
	Create(ctx, p)
	return p
}

// Create creates a pair of proxies that is deleted at the end of the spec.
func Create(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) {
	GinkgoHelper()
	Expect(apiserver.Client.Create(ctx, p)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Delete(ctx, p) })
}

// NewProxy returns one that was not created yet.
func NewProxy(network string, tunnels ...tunnelv1.TunnelConfiguration) *tunnelv1.ContainerNetworkTunnelProxy {
	return &tunnelv1.ContainerNetworkTunnelProxy{
		ObjectMeta: metav1.ObjectMeta{Name: "cntp-" + uuid.NewString()[:8]},
		Spec:       tunnelv1.ContainerNetworkTunnelProxySpec{ContainerNetworkName: network, Tunnels: tunnels},
	}
}

// To is a tunnel to a port of the loopback, at a random port.
func To(name string, port int32) tunnelv1.TunnelConfiguration {
	return tunnelv1.TunnelConfiguration{Name: name, ServerPort: port}
}

// Reaches waits until a pair is in a state, and refreshes it.
func Reaches(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, state tunnelv1.ContainerNetworkTunnelProxyState) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.State).To(Equal(state), "%s; conditions: %s", p.Status.Message, expect.Conditions(p))
	}).Should(Succeed())
}

// NetworkReaches waits until a network is in a state, and refreshes it.
func NetworkReaches(ctx context.Context, n *tunnelv1.ContainerNetwork, state tunnelv1.ContainerNetworkState) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(n), n)).To(Succeed())
		g.Expect(n.Status.State).To(Equal(state), "%s; conditions: %s", n.Status.Message, expect.Conditions(n))
	}).Should(Succeed())
}

// Tunnel waits until a tunnel is in a state, and returns its status.
func Tunnel(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, name string, state tunnelv1.TunnelState) (status tunnelv1.TunnelStatus) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(apiserver.Client.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
		status = tunnelv1.TunnelStatus{}
		for _, t := range p.Status.TunnelStatuses {
			if t.Name == name {
				status = t
			}
		}
		g.Expect(status.State).To(Equal(state), "%s %s; conditions: %s", status.ErrorMessage, p.Status.Message, expect.Conditions(p))
	}).Should(Succeed())
	return status
}

// ClientPod returns the pod of a client proxy.
func ClientPod(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) *corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(apiserver.Client.List(ctx, &pods, client.MatchingLabels{tunnelv1.LabelProxy: string(p.UID), tunnelv1.LabelRole: tunnelv1.RoleClient})).To(Succeed())
	Expect(pods.Items).To(HaveLen(1))
	return &pods.Items[0]
}

// Delete deletes an object and waits until it is gone.
func Delete(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(apiserver.Client.Delete(ctx, o))).To(Succeed())
	expect.Gone(ctx, o)
}

// Echo is an echo server at a port of the loopback.
type Echo struct {
	Port     int32
	listener net.Listener
}

// NewEcho starts one until the spec ends. Port 0 is a random port.
func NewEcho(port int32) *Echo {
	GinkgoHelper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return &Echo{Port: int32(l.Addr().(*net.TCPAddr).Port), listener: l}
}

// Close ends it.
func (e *Echo) Close() { _ = e.listener.Close() }

// Ask sends a text through a tunnel of a client proxy on the loopback, and returns the answer.
func Ask(port int32, text string) (string, error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))), 5*time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	return Exchange(c, text)
}

// Exchange sends a text over a connection, and returns an answer of the same length.
func Exchange(c net.Conn, text string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	answer := make([]byte, len(text))
	n, err := io.ReadFull(c, answer)
	return strings.Clone(string(answer[:n])), err
}
