// Package tunnel tests container networks and tunnels against a real API server with simulated
// nodes, with the operator in this process. Both proxies are real, on the loopback: the server
// proxy is a process of the operator's, and the client proxy one of a kubelet of the tests.
//
// It needs KUBECONFIG; make test brings up the cluster and sets it.
package tunnel

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

var (
	k8s     client.WithWatch
	kubelet *tunneltest.Kubelet
	program string
	// processes is the folder of server proxies.
	processes string
)

func TestIntegration(t *testing.T) { apiserver.Run(t, "Container networks and tunnels") }

var _ = inprocess.Suite{
	Before: func(ctx context.Context) map[string]string {
		k8s = apiserver.Client
		Expect(installed.Folder(ctx, k8s, "config/tunnel/host", "integration")).To(Succeed())
		folder := GinkgoT().TempDir()
		program = tunneltest.Program(ctx, folder)
		processes = filepath.Join(folder, "processes")
		Expect(os.Mkdir(processes, 0o700)).To(Succeed())
		Expect(os.Setenv("TMPDIR", processes)).To(Succeed())
		var stop func()
		kubelet, stop = tunneltest.NewKubelet(k8s, program, folder)
		DeferCleanup(stop)
		return map[string]string{
			"ENABLED_APIS":   tunnelv1.GroupVersion.Group,
			"TUNNEL_BACKEND": "LocalProcess", "TUNNEL_PUBLISH": "HostPort", "TUNNEL_HOST_PORTS": "28000-28511",
			"TUNNEL_BINARY": program, "TUNNEL_IMAGE": "example.com/berg-tunnel:1",
		}
	},
	Gone: func(ctx context.Context) {
		expect.None(ctx, &tunnelv1.ContainerNetworkTunnelProxyList{})
		expect.None(ctx, &tunnelv1.ContainerNetworkList{})
		Expect(filepath.Glob(filepath.Join(processes, "*", "*"))).To(BeEmpty(), "files of server proxies")
	},
}.Register()
