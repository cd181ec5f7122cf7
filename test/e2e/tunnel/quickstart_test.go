package tunnel

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/tunneltest"
)

func contentOf(page string) string {
	GinkgoHelper()
	text, err := os.ReadFile(page)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// shellOf returns the commands of a page, in order.
func shellOf(page string) string {
	GinkgoHelper()
	var all []string
	for i, part := range strings.Split(contentOf(page), "```") {
		if commands, ok := strings.CutPrefix(part, "sh\n"); ok && i%2 == 1 {
			all = append(all, commands)
		}
	}
	Expect(all).NotTo(BeEmpty())
	return strings.Join(all, "")
}

var _ = Describe("The page", func() {
	DescribeTable("connects a pod to a server at the loopback of this machine, command by command", func(ctx SpecContext, name string, more [][2]string) {
		page := "../../../docs/tunnel/" + name
		root, err := filepath.Abs("../../..")
		Expect(err).NotTo(HaveOccurred())
		// The commands run in the folder of a clone, and may leave files there.
		clone := GinkgoT().TempDir()
		Expect(os.Mkdir(filepath.Join(clone, "bin"), 0o700)).To(Succeed())
		Expect(os.Symlink(filepath.Join(root, "docs"), filepath.Join(clone, "docs"))).To(Succeed())
		tunneltest.Program(ctx, filepath.Join(clone, "bin"))
		script := shellOf(page)
		free, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		port := fmt.Sprint(free.Addr().(*net.TCPAddr).Port)
		Expect(free.Close()).To(Succeed())
		for _, change := range append([][2]string{
			{"make tunnel-proxy\n", ""}, // it exists
			// The image that this cluster has, and a free port.
			{"busybox:1.37", deployed.ToolboxImage},
			{"wget -qO-", "get"},
			{"http.server 8080", "http.server " + port},
		}, more...) {
			Expect(script).To(ContainSubstring(change[0]), "the page has changed")
			script = strings.ReplaceAll(script, change[0], strings.ReplaceAll(change[1], "PORT", port))
		}
		DeferCleanup(func(ctx context.Context) {
			guest := &corev1.Pod{}
			guest.SetName("visitor")
			for _, left := range []client.Object{guest, &corev1.Pod{}, &corev1.Service{}, &corev1.Secret{}} {
				left.SetNamespace("default")
				left.SetName(cmp.Or(left.GetName(), "laptop"))
				Expect(client.IgnoreNotFound(world.Delete(ctx, left))).To(Succeed())
				expect.Gone(ctx, left)
			}
		})

		begin := time.Now()
		shell := exec.CommandContext(ctx, "bash", "-e", "-c", script)
		shell.Dir = clone
		shell.Env = append(os.Environ(), "IMAGE="+operatorImage(ctx))
		// Its background processes are killed with it.
		shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
		shell.WaitDelay = 10 * time.Second
		said, err := shell.CombinedOutput()
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
		Expect(err).NotTo(HaveOccurred(), "%s", said)
		head, _, _ := strings.Cut(contentOf(page), "\n")
		Expect(string(said)).To(ContainSubstring(head), "what the pod received")
		AddReportEntry("all commands of the page took", time.Since(begin).Round(time.Second).String())
		Expect(filepath.Join(clone, "pair")).NotTo(BeAnExistingFile())
	},
		deployed.SpecEntry("quickstart.md", "quickstart.md", [][2]string{
			// Its own terminal, until the last command has run.
			{"bin/berg-tunnel expose 8080\n", "bin/berg-tunnel expose PORT:8080 --image \"$IMAGE\" >shown & exposed=$!\nuntil grep Ctrl-C shown; do kill -0 $exposed; read -t 0.2 <> <(:) || :; done\n"},
			{"kubectl delete pod/visitor\n", "kubectl delete pod/visitor\nkill -INT $exposed; wait $exposed; cat shown; kill $(jobs -pr)\n"},
		}),
		deployed.SpecEntry("by-hand.md", "by-hand.md", [][2]string{{"--server-port 8080", "--server-port PORT"}}),
	)
})
