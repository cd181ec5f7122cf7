package gate

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/gateprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/launch"
)

// The ports of the listeners. Replicas listen at them at addresses of their own.
const (
	plainPort  = 26080
	securePort = 26443
	rawPort    = 26444
)

// replica is a process of the gate.
type replica struct {
	*launch.Process

	address string
	// admin is where it answers the operator.
	admin string
}

// newReplica starts a replica at an address of the loopback, with its own rights at an API server, and waits until it has read the routes.
func newReplica(ctx context.Context, address string, server *rest.Config, env ...string) *replica {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	kubeconfig := filepath.Join(folder, "kubeconfig")
	Expect(launch.WriteKubeconfig(kubeconfig, server)).To(Succeed())
	gate, err := launch.New(launch.Settings{Program: program, Kubeconfig: kubeconfig, Namespace: installed.Namespace, Log: filepath.Join(folder, "log")})
	Expect(err).NotTo(HaveOccurred())
	gate.Env = append([]string{
		"GATE_ENABLED=true", "GATE_BIND_HOST=" + address, "GATE_PORT_OFFSET=0", fmt.Sprintf("GATE_PORTS=%d,%d,%d", plainPort, securePort, rawPort),
		"GATE_ADDRESSES=127.0.0.1", "GATE_REDIRECT_HTTPS=false", "ADMIN_BIND_ADDRESS=" + gate.Probes,
	}, env...)
	process, err := gate.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(process.Kill)
	Expect(process.Ready(ctx)).To(Succeed())
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			AddReportEntry("log of the replica "+address, gate.Tail())
		}
	})
	return &replica{process, address, gate.Probes}
}

// account is how replicas reach the API server.
func account(ctx context.Context) *rest.Config {
	GinkgoHelper()
	rc, err := launch.Account(ctx, apiserver.Config, installed.Namespace, gateprocess.Account)
	Expect(err).NotTo(HaveOccurred())
	return rc
}

// at is the address of a port.
func (r *replica) at(port int) string { return fmt.Sprintf("%s:%d", r.address, port) }

// get asks for a host over a new connection, and returns the status and the body, or the error.
func (r *replica) get(ctx context.Context, host string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.at(plainPort)+"/", nil)
	if err != nil {
		return err.Error()
	}
	req.Host = host
	answer, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, body)
}

// stream opens a connection within TLS to a host, and returns a function that sends a line and returns its echo.
func (r *replica) stream(ctx context.Context, host string) func(string) string {
	GinkgoHelper()
	var conn net.Conn
	Eventually(func() (err error) { // its route and its certificate arrive later than the process
		conn, err = (&tls.Dialer{Config: &tls.Config{ServerName: host, InsecureSkipVerify: true}}).DialContext(ctx, "tcp", r.at(rawPort))
		return err
	}).WithContext(ctx).Should(Succeed())
	DeferCleanup(func() { _ = conn.Close() })
	lines := bufio.NewReader(conn)
	return func(line string) string {
		if _, err := fmt.Fprintln(conn, line); err != nil {
			return err.Error()
		}
		echo, err := lines.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(echo)
	}
}

// certificate returns the serial number of the certificate of a host.
func (r *replica) certificate(host string) string {
	conn, err := tls.Dial("tcp", r.at(securePort), &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// play starts a pod that answers requests with its name, and lines of a stream with themselves, and returns its address.
func play(ctx context.Context, name string) string {
	GinkgoHelper()
	own, err := gateprocess.OwnAddress()
	Expect(err).NotTo(HaveOccurred())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(own, "0"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go respond(conn, name)
		}
	}()
	address := listener.Addr().String()
	Expect(gateprocess.SetPod(ctx, k8s, namespace, name, address, name)).To(Succeed())
	return address
}

func respond(conn net.Conn, name string) {
	defer conn.Close()
	lines := bufio.NewReader(conn)
	first, err := lines.ReadString('\n')
	if strings.HasPrefix(first, "GET ") {
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(name), name)
		return
	}
	for line := first; err == nil; line, err = lines.ReadString('\n') {
		if _, err := io.WriteString(conn, line); err != nil {
			return
		}
	}
}
