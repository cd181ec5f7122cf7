package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/client"
	"github.com/bergctf/berg-operator/test/cluster/disk"
)

const (
	serviceRange  = "10.96.0.0/16"
	clusterDomain = "cluster.local"
)

// serviceIP returns an address of serviceRange: 1 is the API server's, 10 by custom the DNS server's.
func serviceIP(n int) string { return fmt.Sprintf("10.96.0.%d", n) }

// port returns where a component of the control plane listens. A node's network namespace is its own,
// so there the customary numbers are free.
func (c *Cluster) port(offset int) int {
	if c.Profile == ProfileSimulated {
		return c.BasePort + offset
	}
	return map[int]int{
		portAPI: 6443, portEtcd: 2379, portEtcdPeer: 2380, portControllerManager: 10257, portScheduler: 10259,
	}[offset]
}

func (c *Cluster) apiHost() string {
	if c.Profile == ProfileSimulated {
		return "127.0.0.1"
	}
	return c.nodeIP()
}

func (c *Cluster) apiURL() string {
	return "https://" + net.JoinHostPort(c.apiHost(), strconv.Itoa(c.port(portAPI)))
}

func (c *Cluster) etcd() component {
	client := fmt.Sprintf("https://127.0.0.1:%d", c.port(portEtcd))
	peer := fmt.Sprintf("https://127.0.0.1:%d", c.port(portEtcdPeer))
	return component{
		name: "etcd",
		path: c.binary(build.ControlPlane.Name, "etcd"),
		args: []string{
			"--name=berg",
			"--data-dir=" + c.path("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=berg=" + peer,
			// On a shared machine all users reach a loopback port: only clients with a certificate may read Secrets here.
			"--client-cert-auth", "--trusted-ca-file=" + c.certificate(etcdAuthority),
			"--cert-file=" + c.certificate("etcd"), "--key-file=" + c.key("etcd"),
			"--peer-client-cert-auth", "--peer-trusted-ca-file=" + c.certificate(etcdAuthority),
			"--peer-cert-file=" + c.certificate("etcd"), "--peer-key-file=" + c.key("etcd"),
			// The data need not outlive the machine, and fsync is most of what a write costs.
			"--unsafe-no-fsync",
			"--quota-backend-bytes=" + strconv.Itoa(8<<30),
			"--auto-compaction-mode=periodic", "--auto-compaction-retention=5m",
			"--log-level=warn",
		},
	}
}

func (c *Cluster) apiserver(api *client.Client) component {
	args := []string{
		"--etcd-servers=" + fmt.Sprintf("https://127.0.0.1:%d", c.port(portEtcd)),
		"--etcd-cafile=" + c.certificate(etcdAuthority),
		"--etcd-certfile=" + c.certificate("etcd-client"), "--etcd-keyfile=" + c.key("etcd-client"),
		"--bind-address=" + c.apiHost(),
		"--advertise-address=" + c.apiHost(),
		"--secure-port=" + strconv.Itoa(c.port(portAPI)),
		"--tls-cert-file=" + c.certificate("apiserver"), "--tls-private-key-file=" + c.key("apiserver"),
		"--client-ca-file=" + c.certificate(clusterAuthority),
		"--service-cluster-ip-range=" + serviceRange,
		"--service-account-issuer=https://kubernetes.default.svc." + clusterDomain,
		"--service-account-key-file=" + c.path("pki", accountKey+".pub"),
		"--service-account-signing-key-file=" + c.key(accountKey),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
		"--kubelet-client-certificate=" + c.certificate("apiserver-kubelet"),
		"--kubelet-client-key=" + c.key("apiserver-kubelet"),
		// A node's name resolves nowhere; without this, logs and exec look it up.
		"--kubelet-preferred-address-types=InternalIP",
		// Aggregated API servers.
		"--requestheader-client-ca-file=" + c.certificate(frontProxyAuthority),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.certificate("front-proxy"),
		"--proxy-client-key-file=" + c.key("front-proxy"),
		"--enable-aggregator-routing",
		// A load test is one client with very many requests.
		"--max-requests-inflight=3000",
		"--max-mutating-requests-inflight=1500",
	}
	if c.Profile == ProfileSimulated {
		// Endpoints must not be loopback addresses, so there is nothing true to publish.
		args = append(args, "--endpoint-reconciler-type=none")
	} else {
		args = append(args, "--kubelet-certificate-authority="+c.certificate(clusterAuthority))
	}
	if c.Audit {
		args = append(args,
			"--audit-policy-file="+c.path("audit-policy.yaml"),
			"--audit-log-path="+c.path("logs", "audit.log"),
			"--audit-log-mode=batch",
			// What does not fit is dropped.
			"--audit-log-batch-buffer-size=100000",
			// Tests that count requests need them in one file; ten thousand instances make 600 MB.
			"--audit-log-maxsize=4096",
		)
	}
	return component{
		name:  "kube-apiserver",
		path:  c.binary(build.ControlPlane.Name, "kube-apiserver"),
		args:  args,
		ready: api.Healthy,
		hint:  "is the machine short of memory, or a port taken? See the log above",
	}
}

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func (c *Cluster) controllerManager() component {
	clusterRange, mask := nodePodRange, nodePodMask
	if c.Profile == ProfileSimulated {
		// 16,384 addresses for each node: kwok gives every pod one of them.
		clusterRange, mask = "10.128.0.0/9", "18"
	}
	return component{
		name: "kube-controller-manager",
		path: c.binary(build.ControlPlane.Name, "kube-controller-manager"),
		args: []string{
			"--kubeconfig=" + c.path("kubeconfig", "controller-manager"),
			"--authentication-kubeconfig=" + c.path("kubeconfig", "controller-manager"),
			"--authorization-kubeconfig=" + c.path("kubeconfig", "controller-manager"),
			"--bind-address=" + c.apiHost(),
			"--secure-port=" + strconv.Itoa(c.port(portControllerManager)),
			"--leader-elect=false",
			"--use-service-account-credentials",
			"--service-account-private-key-file=" + c.key(accountKey),
			"--root-ca-file=" + c.certificate(clusterAuthority),
			"--cluster-signing-cert-file=" + c.certificate(clusterAuthority),
			"--cluster-signing-key-file=" + c.key(clusterAuthority),
			"--requestheader-client-ca-file=" + c.certificate(frontProxyAuthority),
			"--allocate-node-cidrs",
			"--cluster-cidr=" + clusterRange,
			"--node-cidr-mask-size=" + mask,
			"--service-cluster-ip-range=" + serviceRange,
			// The defaults would make the controllers, not the operator under test, the bottleneck.
			"--kube-api-qps=500", "--kube-api-burst=1000",
			"--concurrent-namespace-syncs=20",
			"--concurrent-deployment-syncs=10",
			"--concurrent-replicaset-syncs=10",
		},
		ready: c.healthz("https", c.port(portControllerManager)),
	}
}

func (c *Cluster) scheduler() component {
	return component{
		name: "kube-scheduler",
		path: c.binary(build.ControlPlane.Name, "kube-scheduler"),
		args: []string{
			"--kubeconfig=" + c.path("kubeconfig", "scheduler"),
			"--authentication-kubeconfig=" + c.path("kubeconfig", "scheduler"),
			"--authorization-kubeconfig=" + c.path("kubeconfig", "scheduler"),
			"--bind-address=" + c.apiHost(),
			"--secure-port=" + strconv.Itoa(c.port(portScheduler)),
			"--leader-elect=false",
			"--kube-api-qps=500", "--kube-api-burst=1000",
		},
		ready: c.healthz("https", c.port(portScheduler)),
	}
}

// healthz asks a component that serves its own health where the API server listens too.
func (c *Cluster) healthz(scheme string, port int) func(context.Context) error {
	client := &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			// Each creates its certificate at its start and does not publish it; only the status code matters.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
	}
	url := scheme + "://" + net.JoinHostPort(c.apiHost(), strconv.Itoa(port)) + "/healthz"
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, resp.Status)
		}
		return nil
	}
}

// prepare writes everything the control plane reads: certificates, kubeconfigs, policies.
func (c *Cluster) prepare() error {
	for _, dir := range []string{"pki", "kubeconfig", "logs", "etcd", "home", "tmp"} {
		if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
			return err
		}
	}
	if err := c.writeCertificates(); err != nil {
		return err
	}
	for _, user := range c.kubeconfigUsers() {
		if err := c.writeKubeconfig(user); err != nil {
			return err
		}
	}
	return disk.WriteFile(c.path("audit-policy.yaml"), []byte(auditPolicy), 0o600)
}
