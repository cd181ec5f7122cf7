package helm

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/podprocess"
	"github.com/bergctf/berg-operator/test/lib/residue"
	"github.com/bergctf/berg-operator/test/lib/strangers"
)

const (
	gateStage  = "gate-journeys"
	gateDomain = "gate.example.test"

	routed = `
containers:
- hostname: box
  image: ghcr.io/bergctf/samples/toolbox:v0.1.0
  ports:
  - {name: web, port: 8080, type: publicHttpRoute}
  - {name: echo, port: 9000, type: publicTlsRoute}
  environment: {TOOLBOX_HTTP: ":8080", TOOLBOX_TCP: ":9000"}
  resourceRequests: {cpu: 10m, memory: 16Mi}
`
)

// player reaches a node under the host names of instances, and believes one certificate.
type player struct {
	node string
	pool *x509.CertPool
}

// dial connects to a port of the node.
func (p player) dial(ctx context.Context, port string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", net.JoinHostPort(p.node, port))
}

// get returns the status of an answer, and where it redirects to or after how many seconds to try again. Ports are where the gate is reached, by the port of the URL.
func (p player) get(ctx context.Context, address string, ports map[string]string) (status int, location string, err error) {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: p.pool, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			if other, mapped := ports[port]; mapped {
				port = other
			}
			return p.dial(ctx, port)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	if seconds := response.Header.Get("Retry-After"); seconds != "" { // each page of the gate has its own
		return response.StatusCode, "try again after " + seconds + " s: ", response.Body.Close()
	}
	return response.StatusCode, response.Header.Get("Location"), response.Body.Close()
}

// echo sends a line through TLS, and returns the answer.
func (p player) echo(ctx context.Context, host, port string) (string, error) {
	raw, err := p.dial(ctx, port)
	if err != nil {
		return "", err
	}
	defer func() { _ = raw.Close() }()
	return p.say(p.secure(raw, host))
}

// secure begins TLS for a host.
func (p player) secure(raw net.Conn, host string) net.Conn {
	return tls.Client(raw, &tls.Config{RootCAs: p.pool, ServerName: host, MinVersion: tls.VersionTLS12})
}

// say sends a line, and returns the answer.
func (player) say(conn net.Conn) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return "", err
	}
	return bufio.NewReader(conn).ReadString('\n')
}

// gatePods returns the replicas of the gate that are ready and do not end.
func gatePods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := k8s.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "berg-gate"})
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	}), err
}

// openStreams opens streams to a host. With so many, each of two replicas nearly certainly has some.
func (p player) openStreams(ctx context.Context, host, port string) (streams []net.Conn) {
	GinkgoHelper()
	for range 16 {
		raw, err := p.dial(ctx, port)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { _ = raw.Close() })
		streams = append(streams, p.secure(raw, host))
	}
	Expect(p.countAlive(streams)).To(Equal(len(streams)))
	return streams
}

// countAlive returns how many streams answer.
func (p player) countAlive(streams []net.Conn) (n int) {
	for _, conn := range streams {
		if answer, err := p.say(conn); err == nil && answer == "hello\n" {
			n++
		}
	}
	return n
}

// keepAsking asks for an address ten times a second until stop is called, which returns the requests that were not answered with 200.
func (p player) keepAsking(ctx context.Context, address string) (stop func() []string) {
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan []string, 1)
	go func() {
		var all []string
		for ticker := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				failed <- all
				return
			case <-ticker.C:
			}
			began := time.Now()
			if status, _, err := p.get(context.WithoutCancel(ctx), address, nil); err != nil || status != http.StatusOK {
				all = append(all, fmt.Sprintf("%s: %d %v", began.Format(time.StampMilli), status, err))
			}
		}
	}()
	return func() []string { cancel(); return <-failed }
}

// service returns a port of an instance by its name.
func service(i *bergv1.ChallengeInstance, name string) bergv1.ServiceEndpoint {
	GinkgoHelper()
	for _, s := range i.Status.Services {
		if s.Name == name {
			return s
		}
	}
	Fail(fmt.Sprintf("the instance has no port %s: %+v", name, i.Status.Services))
	return bergv1.ServiceEndpoint{}
}

// selfSigned makes the certificate of a domain in a Secret, and returns a player who believes it.
func selfSigned(ctx context.Context, namespace, name, domain string) player {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"*." + domain}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	Expect(k8s.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": certificate, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})},
	})).To(Succeed())
	p := player{pool: x509.NewCertPool()}
	Expect(p.pool.AppendCertsFromPEM(certificate)).To(BeTrue())
	var nodes corev1.NodeList
	Expect(k8s.List(ctx, &nodes)).To(Succeed())
	for _, a := range nodes.Items[0].Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			p.node = a.Address
		}
	}
	return p
}

// expectServed expects that both ports of an instance answer a player, HTTPS and raw TCP through TLS.
func expectServed(ctx context.Context, p player, i *bergv1.ChallengeInstance, ports map[string]string) {
	GinkgoHelper()
	web, echo := service(i, "web"), service(i, "echo")
	status, _, err := p.get(ctx, web.URL+"/healthz", ports)
	Expect(err).NotTo(HaveOccurred())
	Expect(status).To(Equal(http.StatusOK), web.URL)
	port := strconv.Itoa(int(echo.Port))
	if other, mapped := ports[port]; mapped {
		port = other
	}
	Expect(p.echo(ctx, echo.Hostname, port)).To(Equal("hello\n"))
}

var _ = Describe("The gate", Ordered, Label("gate"), func() {
	var before sets.Set[string]
	var alice player

	BeforeAll(func(ctx SpecContext) {
		var err error
		before, err = residue.Objects(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: gateStage}})).To(Succeed())
		alice = selfSigned(ctx, gateStage, "certificate", gateDomain)
	}, NodeTimeout(limits.Scaled(time.Minute)))

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			for _, command := range [][]string{
				{"get", "pods", "-A", "-o", "wide"},
				{"logs", "-n", namespace, "-l", "app.kubernetes.io/name=berg-gate", "--prefix", "--tail=40"},
				{"logs", "-n", namespace, "-l", "app.kubernetes.io/name=berg-gate", "--prefix", "--tail=40", "--previous"},
			} {
				text, _ := kubectl(ctx, command...)
				AddReportEntry("kubectl "+strings.Join(command, " "), text)
			}
		}
	})

	It("is a part of the chart, at the ports of nodes, with the Gateway of the settings", func(ctx SpecContext) {
		said := must(helm(ctx, install("--set", "crds.keep=false",
			"--set", "settings.CHALLENGE_DOMAIN="+gateDomain, "--set", "settings.CHALLENGE_HTTP_PORT=443", "--set", "settings.CHALLENGE_TLS_PORT=8443",
			"--set", "settings.GATEWAY_NAMESPACE="+gateStage,
			"--set", "gate.enabled=true", "--set", "gate.kind=DaemonSet", "--set", "gate.gateway.tlsSecret=certificate")...))
		Expect(said).To(ContainSubstring("The gate serves the host names of instances"))
		Expect(setting(deployment(ctx, namespace), "GATEWAY_DATAPLANE_NAMESPACES")).To(Equal(namespace))
		bergtest.Challenge(ctx, gateStage, "routed", routed)
		instance := bergtest.Running(ctx, gateStage, "routed")
		expectServed(ctx, alice, instance, nil)

		By("asking for the host without TLS")
		host := service(instance, "web").Hostname
		status, location, err := alice.get(ctx, "http://"+host+"/a?b=c", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(Equal(http.StatusPermanentRedirect))
		Expect(location).To(Equal("https://" + host + "/a?b=c"))

		By("asking for a host that never was")
		status, _, err = alice.get(ctx, "https://never."+gateDomain+"/", nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(Equal(http.StatusNotFound))

		By("asking the replicas who was there")
		idle := bergtest.Running(ctx, gateStage, "routed")
		list := must(output(ctx, "go", "run", "./cmd/kubectl-berg", "list", "-n", gateStage, "--usage"))
		Expect(list).To(And(MatchRegexp(instance.Name+`\s.*\sin use\s`), MatchRegexp(idle.Name+`\s.*\snever opened\s`)))
		Expect(must(output(ctx, "go", "run", "./cmd/kubectl-berg", "status"))).To(ContainSubstring("1 in use, 1 never opened"))
		for _, i := range []*bergv1.ChallengeInstance{idle, instance} {
			Expect(k8s.Delete(ctx, i)).To(Succeed())
			bergtest.GoneWithin(ctx, i, startLimit)
		}
	}, SpecTimeout(3*startLimit))

	It("answers the first request to each of many instances that start together, as soon as it is Running", func(ctx SpecContext) {
		const starts = 50
		w, err := k8s.Watch(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(gateStage))
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		all := bergtest.Several(ctx, gateStage, "routed", starts)
		answers := make(chan string, starts)
		for asked := map[string]bool{}; len(asked) < starts; {
			var e watch.Event
			Eventually(ctx, w.ResultChan()).WithTimeout(startLimit).Should(Receive(&e))
			i, ok := e.Object.(*bergv1.ChallengeInstance)
			if !ok || asked[i.Name] || i.Status.Phase != bergv1.PhaseRunning || i.DeletionTimestamp != nil {
				continue
			}
			asked[i.Name] = true
			go func() {
				status, retry, err := alice.get(ctx, service(i, "web").URL+"/healthz", nil)
				answers <- fmt.Sprint(i.Name, ": ", retry, status, " ", err)
			}()
		}
		for range starts {
			Expect(<-answers).To(HaveSuffix(": 200 <nil>"))
		}
		for _, i := range all {
			Expect(k8s.Delete(ctx, i)).To(Succeed())
		}
		for _, i := range all {
			bergtest.GoneWithin(ctx, i, startLimit)
		}
	}, SpecTimeout(5*startLimit))

	It("moves to node ports by other values", func(ctx SpecContext) {
		must(helm(ctx, upgrade("--set", "gate.kind=Deployment", "--set", "gate.service.type=NodePort",
			"--set", "gate.ports.http=30080", "--set", "gate.ports.https=30443", "--set", "gate.ports.tls=30843",
			"--set", "settings.CHALLENGE_HTTP_PORT=30443", "--set", "settings.CHALLENGE_TLS_PORT=30843")...))
		Eventually(func() ([]appsv1.DaemonSet, error) {
			var daemons appsv1.DaemonSetList
			err := k8s.List(ctx, &daemons, client.InNamespace(namespace))
			return daemons.Items, err
		}).Should(BeEmpty())
		instance := bergtest.Running(ctx, gateStage, "routed")
		address, err := url.Parse(service(instance, "web").URL)
		Expect(err).NotTo(HaveOccurred())
		Expect(address.Port()).To(Equal("30443"))
		expectServed(ctx, alice, instance, nil)
		Expect(k8s.Delete(ctx, instance)).To(Succeed())
		bergtest.GoneWithin(ctx, instance, startLimit)
	}, SpecTimeout(3*startLimit))

	It("loses only the connections of a replica that is killed, and none when it is updated", func(ctx SpecContext) {
		instance := bergtest.Running(ctx, gateStage, "routed")
		address, host := service(instance, "web").URL+"/healthz", service(instance, "echo").Hostname
		replicas, err := gatePods(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(replicas).To(HaveLen(2))

		By("killing a replica")
		streams := alice.openStreams(ctx, host, "30843")
		Expect(podprocess.Kill(replicas[0].UID, "/berg-gate")).To(Equal(1))
		alive := alice.countAlive(streams)
		Expect(alive).To(And(BeNumerically(">", 0), BeNumerically("<", len(streams))), "the streams of the other replica")
		Eventually(ctx, func() (int, error) { // until Kubernetes has noticed it
			status, _, err := alice.get(ctx, address, nil)
			return status, err
		}).WithTimeout(limits.Scaled(20 * time.Second)).WithPolling(100 * time.Millisecond).MustPassRepeatedly(20).Should(Equal(http.StatusOK))
		Eventually(ctx, gatePods).WithTimeout(startLimit).Should(HaveLen(2))
		Expect(alice.countAlive(streams)).To(Equal(alive))

		By("opening connections that send nothing, from the address that players have behind a node port")
		crowd := &strangers.Crowd{Address: net.JoinHostPort(alice.node, "30443")}
		defer crowd.Leave()
		Expect(crowd.Join(ctx, 1500)).To(Succeed())
		for range 20 {
			status, _, err := alice.get(ctx, address, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(status).To(Equal(http.StatusOK))
		}
		Eventually(ctx, crowd.Open).Should(BeNumerically("<=", len(replicas)*512), "what GATE_ADDRESS_CONNECTIONS lets replicas hold")
		crowd.Leave()

		By("replacing all replicas")
		replicas, err = gatePods(ctx)
		Expect(err).NotTo(HaveOccurred())
		streams = alice.openStreams(ctx, host, "30843")
		stop := alice.keepAsking(ctx, address)
		must(kubectl(ctx, "-n", namespace, "rollout", "restart", "deployment/berg-gate"))
		ends := func(pod corev1.Pod) bool {
			return k8s.Get(ctx, client.ObjectKeyFromObject(&pod), &pod) == nil && pod.DeletionTimestamp != nil
		}
		Eventually(ctx, func() bool { return slices.ContainsFunc(replicas, ends) }).WithTimeout(startLimit).Should(BeTrue())
		Expect(alice.countAlive(streams)).To(Equal(len(streams)), "the streams of a replica that ends")
		must(kubectl(ctx, "-n", namespace, "rollout", "status", "deployment/berg-gate", "--timeout", startLimit.String()))
		Expect(stop()).To(BeEmpty(), "requests that failed during the update")
		Expect(k8s.Delete(ctx, instance)).To(Succeed())
		bergtest.GoneWithin(ctx, instance, startLimit)
	}, SpecTimeout(5*startLimit))

	It("leaves with the release", func(ctx SpecContext) {
		must(helm(ctx, "uninstall", release, "--wait", "--timeout", startLimit.String()))
		for _, name := range []string{gateStage, namespace} {
			Expect(k8s.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		}
		expect.Until(ctx, startLimit, func(ctx context.Context) error { return residue.LeftBehind(ctx, before, residue.Nothing) })
	}, SpecTimeout(2*startLimit))

	It("is one more file, behind a load balancer, and leaves nothing when it is deleted", func(ctx SpecContext) {
		const domain, lent = "challenges.example.com", "203.0.113.77"
		must(kubectl(ctx, "apply", "--server-side", "-f", "deploy/install.yaml"))
		must(kubectl(ctx, "apply", "--server-side", "-f", "deploy/gate.yaml"))
		must(kubectl(ctx, "-n", fileNamespace, "set", "env", "deployment/berg-operator-controller-manager",
			"CHALLENGE_DOMAIN="+domain, "CHALLENGE_HTTP_PORT=443", "CHALLENGE_TLS_PORT=8443", "GATEWAY_DATAPLANE_NAMESPACES="+fileNamespace))
		must(kubectl(ctx, "apply", "-k", "config/berg/samples/prerequisites"))
		bob := selfSigned(ctx, "berg", "challenges-tls", domain)
		for _, name := range []string{"berg-operator-controller-manager", "berg-gate"} {
			must(kubectl(ctx, "-n", fileNamespace, "rollout", "status", "deployment/"+name, "--timeout", startLimit.String()))
		}

		By("playing the cloud that lends an address to the Service")
		var front corev1.Service
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: fileNamespace, Name: "berg-gate"}, &front)).To(Succeed())
		front.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: lent}}
		Expect(k8s.Status().Update(ctx, &front)).To(Succeed())
		nodePorts := map[string]string{}
		for _, p := range front.Spec.Ports {
			nodePorts[strconv.Itoa(int(p.Port))] = strconv.Itoa(int(p.NodePort))
		}
		Eventually(func() (string, error) {
			return kubectl(ctx, "-n", "berg", "get", "gateways.gateway.networking.k8s.io", "berg-gateway", "-o", "jsonpath={.status.addresses[*].value}")
		}).Should(Equal(lent))

		By("playing")
		bergtest.Challenge(ctx, "berg", "routed", routed)
		instance := bergtest.Running(ctx, "berg", "routed")
		Expect(service(instance, "web").URL).To(HaveSuffix("." + domain))
		expectServed(ctx, bob, instance, nodePorts)
		Expect(k8s.Delete(ctx, instance)).To(Succeed())
		bergtest.GoneWithin(ctx, instance, startLimit)

		By("removing it as the README says")
		must(kubectl(ctx, "delete", "-f", "deploy/install.yaml"))
		must(kubectl(ctx, "delete", "--ignore-not-found", "-f", "deploy/gate.yaml"))
		must(kubectl(ctx, "delete", "--ignore-not-found", "-k", "config/berg/samples/prerequisites"))
		expect.Until(ctx, startLimit, func(ctx context.Context) error { return residue.LeftBehind(ctx, before, residue.Nothing) })
	}, SpecTimeout(5*startLimit))
})
