package berg

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

// clientTimeout bounds one attempt of a client.
const clientTimeout = 5 * time.Second

var _ = Describe("What clients reach", Label("network", "attack"), Serial, func() {
	It("is what status.services says, until the instance ends", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		reported, running := startExposed(ctx, stage)
		site, line := endpoint(running, "web"), endpoint(running, "line")
		tcp, udp := world.AtNode(endpoint(running, "echo").Port), world.AtNode(endpoint(running, "echo-datagrams").Port)
		Expect(site.URL).To(Equal("https://" + site.Hostname))
		Expect(line.URL).To(Equal("tls://" + line.Hostname + ":8443"))
		Expect(endpoint(running, "echo").URL).To(Equal(fmt.Sprintf("tcp://%s:%d", setting("CHALLENGE_DOMAIN"), endpoint(running, "echo").Port)))
		Expect(endpoint(running, "echo-datagrams").URL).To(HavePrefix("udp://"))

		By("HTTPS by its host name, under a certificate for it")
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return visit(ctx, site, http.StatusOK) })
		unknown := site
		unknown.URL = "https://unknown." + setting("CHALLENGE_DOMAIN")
		Expect(visit(ctx, unknown, http.StatusNotFound)).To(Succeed())

		By("plain TCP behind TLS, under a certificate for its host name")
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			_, err := echoTLS(ctx, line, trusting())
			return err
		})

		By("TCP and UDP at a node's port")
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return echo(ctx, "tcp", tcp) })
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return echo(ctx, "udp", udp) })

		By("nothing once it has ended")
		reported.Patch(ctx, `{"terminationReason":"UserRequest"}`)
		reported.ExpectEnd(ctx)
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return visit(ctx, site, http.StatusNotFound) })
		Expect(echo(ctx, "tcp", tcp)).NotTo(Succeed())
		Expect(echo(ctx, "udp", udp)).NotTo(Succeed())
		_, err := echoTLS(ctx, line, trusting())
		Expect(err).To(HaveOccurred())
	}, SpecTimeout(deployed.SpecLimit))

	It("is a challenge's own certificate on a listener that passes TLS through", func(ctx SpecContext) {
		for name, value := range map[string]string{"CHALLENGE_TLS_LISTENER_NAME": "tls-passthrough", "CHALLENGE_TLS_PORT": "1337"} {
			withSetting(ctx, name, value)
		}
		stage := journey.NewStage(ctx)
		stage.Challenge(ctx, "certified", exposedBox())
		running := stage.Start(ctx, stage.Instance("certified")).ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		secure := endpoint(running, "secure")
		Expect(secure.URL).To(Equal("tls://" + secure.Hostname + ":1337"))
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
			who, err := echoTLS(ctx, secure, &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return err
			}
			return deployed.ErrorIf(who != "toolbox", "the certificate is that of "+who)
		})
	}, SpecTimeout(deployed.SpecLimit))

	It("stays connected while the operator looks at the instance again and again, and restarts", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		reported, running := startExposed(ctx, stage)
		site := endpoint(running, "web")
		expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error { return visit(ctx, site, http.StatusOK) })

		dialer := websocket.Dialer{NetDialContext: atGateway, TLSClientConfig: trusting(), HandshakeTimeout: clientTimeout}
		socket, response, err := dialer.DialContext(ctx, strings.Replace(site.URL, "http", "ws", 1)+"/echo", nil)
		Expect(err).NotTo(HaveOccurred())
		response.Body.Close()
		DeferCleanup(socket.Close)
		raw, err := (&net.Dialer{Timeout: clientTimeout}).DialContext(ctx, "tcp", world.AtNode(endpoint(running, "echo").Port))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(raw.Close)
		lines := bufio.NewReader(raw)
		alive := func(i int) {
			GinkgoHelper()
			want := fmt.Sprintf("message %d", i)
			deadline := time.Now().Add(clientTimeout)
			Expect(socket.SetReadDeadline(deadline)).To(Succeed())
			Expect(socket.WriteMessage(websocket.TextMessage, []byte(want))).To(Succeed())
			_, got, err := socket.ReadMessage()
			Expect(err).NotTo(HaveOccurred())
			Expect(string(got)).To(Equal(want))
			Expect(raw.SetDeadline(deadline)).To(Succeed())
			_, err = io.WriteString(raw, want+"\n")
			Expect(err).NotTo(HaveOccurred())
			line, err := lines.ReadString('\n')
			Expect(err).NotTo(HaveOccurred())
			Expect(line).To(Equal(want + "\n"))
		}
		// Each change of an annotation is a reconciliation of its own.
		const reconciliations = 60
		for i := range reconciliations {
			alive(i)
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"e2e.berg.norelect.ch/look-again":"%d"}}}`, i)
			instance := running.DeepCopy()
			Expect(world.Patch(ctx, instance, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
		}
		withSetting(ctx, "LOG_LEVEL", "1")
		alive(reconciliations)
		Expect(reported.Now().Status.InstanceID).To(Equal(running.Status.InstanceID))
	}, SpecTimeout(deployed.SpecLimit))

	It("is what the instance itself reaches: its public address, through the Gateway", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		outbound := &bergv1.Challenge{Spec: bergv1.ChallengeSpec{AllowOutboundTraffic: true, Containers: []bergv1.Container{exposedBox()}}}
		outbound.Name, outbound.Namespace = "outbound", stage.Namespace
		Expect(world.Create(ctx, outbound)).To(Succeed())
		stage.Challenge(ctx, "closed", exposedBox())
		for name, way := range map[string][]string{
			// Without outbound traffic names outside the instance do not resolve.
			"closed":   {"-connect", net.JoinHostPort(world.NodeAddress, setting("CHALLENGE_HTTP_PORT"))},
			"outbound": nil,
		} {
			running := stage.Start(ctx, stage.Instance(name)).ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
			site := endpoint(running, "web")
			expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
				// The toolbox does not know the authority of the cluster.
				command := append([]string{"get", "-timeout", "3s", "-insecure"}, way...)
				_, err := world.Exec(ctx, running.Status.Namespace, "box", "", append(command, site.URL+"/")...)
				return err
			})
		}
	}, SpecTimeout(deployed.SpecLimit))
})

func exposedBox() bergv1.Container {
	c := everyPort()
	c.DynamicFlag = nil
	c.Environment["TOOLBOX_TLS"] = bergv1.StringValue(":8443")
	return c
}

// startExposed starts an instance with a service behind each port, and a line of plain TCP
// behind a TLS route.
func startExposed(ctx context.Context, s *journey.Stage) (*journey.Story, *bergv1.ChallengeInstance) {
	GinkgoHelper()
	line := journey.Toolbox("line", newPort("line", 9000, bergv1.PublicTLSRoute))
	line.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_TCP": bergv1.StringValue(":9000")}
	s.Challenge(ctx, "exposed", exposedBox(), line)
	reported := s.Start(ctx, s.Instance("exposed"))
	return reported, reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
}

// atGateway leads every name to the Gateway, as the DNS of an event does.
func atGateway(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(world.NodeAddress, port))
}

// trusting believes certificates of the cluster's authority, as that of the Gateway is.
func trusting() *tls.Config {
	GinkgoHelper()
	authorities := x509.NewCertPool()
	Expect(authorities.AppendCertsFromPEM(world.Rest.CAData)).To(BeTrue())
	return &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
}

// visit opens what a player was told in a browser.
func visit(ctx context.Context, e bergv1.ServiceEndpoint, want int) error {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	transport := &http.Transport{DialContext: atGateway, TLSClientConfig: trusting(), DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL+"/", nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return deployed.ErrorIf(response.StatusCode != want, fmt.Sprintf("%s answered %s", e.URL, response.Status))
}

// echoTLS sends a line to an endpoint by its name, expects it back, and tells
// whose certificate it was.
func echoTLS(ctx context.Context, e bergv1.ServiceEndpoint, config *tls.Config) (who string, err error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	reported, err := url.Parse(e.URL)
	if err != nil {
		return "", err
	}
	raw, err := atGateway(ctx, "tcp", reported.Host)
	if err != nil {
		return "", err
	}
	config.ServerName = reported.Hostname()
	connection := tls.Client(raw, config)
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(clientTimeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(connection, "hello\n"); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(connection).ReadString('\n')
	if err != nil {
		return "", err
	}
	if answer != "hello\n" {
		return "", fmt.Errorf("%s answered %q", e.Hostname, answer)
	}
	return connection.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}
