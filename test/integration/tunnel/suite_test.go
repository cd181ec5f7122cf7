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
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
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

var _ = BeforeSuite(func(ctx context.Context) {
	k8s, _ = apiserver.Begin(ctx)
	Expect(installed.Folder(ctx, k8s, "config/tunnel/host", "integration")).To(Succeed())
	folder := GinkgoT().TempDir()
	program = tunneltest.Program(ctx, folder)
	processes = filepath.Join(folder, "processes")
	Expect(os.Mkdir(processes, 0o700)).To(Succeed())
	Expect(os.Setenv("TMPDIR", processes)).To(Succeed())
	var stop func()
	kubelet, stop = tunneltest.NewKubelet(k8s, program, folder)
	DeferCleanup(stop)
	inprocess.Begin(map[string]string{
		"ENABLED_APIS":   tunnelv1.GroupVersion.Group,
		"TUNNEL_BACKEND": "LocalProcess", "TUNNEL_PUBLISH": "HostPort", "TUNNEL_HOST_PORTS": "28000-28511",
		"TUNNEL_BINARY": program, "TUNNEL_IMAGE": "example.com/berg-tunnel:1",
	})
}, NodeTimeout(5*time.Minute))

// After all specs nothing is left over: no object, no process, no file.
var _ = AfterSuite(func(ctx context.Context) {
	if k8s == nil {
		return
	}
	Eventually(func(g Gomega) {
		g.Expect(apiserver.Names(ctx, &tunnelv1.ContainerNetworkTunnelProxyList{})).To(BeEmpty())
		g.Expect(apiserver.Names(ctx, &tunnelv1.ContainerNetworkList{})).To(BeEmpty())
	}).Should(Succeed())
	Expect(filepath.Glob(filepath.Join(processes, "*", "*"))).To(BeEmpty(), "files of server proxies")
	inprocess.End()
	apiserver.DeleteNamespaces(ctx)
}, NodeTimeout(4*time.Minute))
