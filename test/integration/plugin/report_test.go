package plugin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// unpack returns the files of a report.
func unpack(archive []byte) map[string]string {
	GinkgoHelper()
	compressed, err := gzip.NewReader(bytes.NewReader(archive))
	Expect(err).NotTo(HaveOccurred())
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Expect(err).NotTo(HaveOccurred())
		text, err := io.ReadAll(reader)
		Expect(err).NotTo(HaveOccurred())
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
}

// operatorDeployment creates what the plugin takes for the operator, with settings of every kind.
func operatorDeployment(ctx context.Context, namespace string) {
	GinkgoHelper()
	Expect(apiserver.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}, StringData: map[string]string{"CHALLENGE_DOMAIN": "secret-domain.example.org"},
	})).To(Succeed())
	labels := map[string]string{"app.kubernetes.io/name": "berg-operator", "control-plane": "controller-manager"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "berg-operator-controller-manager", Labels: labels}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "manager", Image: "example.com/berg-operator:v0.1.0",
		Env: []corev1.EnvVar{
			{Name: "CHALLENGE_INSTANCE_TIMEOUT", Value: "3h"},
			{Name: "HTTPS_PROXY", Value: "http://user:proxy-password@proxy"},
			{Name: "KAFKA_SASL_USERNAME", Value: "kafka-user"},
		},
		EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
	}}
	Expect(apiserver.Client.Create(ctx, d)).To(Succeed())
}

var _ = Describe("report", func() {
	It("writes the state of the event without its flags and secrets", func(ctx context.Context) {
		ns, system := bergtest.Namespace(ctx), apiserver.Namespace(ctx)
		operatorDeployment(ctx, system)
		const flag, password, shared = "flag{of one & only <instance>}", "author's password", "flag{of_the_challenge}"
		bergtest.Challenge(ctx, ns, "secretive", `
flag: `+shared+`
description: never in a report
containers:
- hostname: web
  image: berg.test/behaviour/image-pull
  environment: {DB_PASSWORD: "`+password+`", HARMLESS: harmless-value}
  command: [sh, -c, "echo never in a report"]
  dynamicFlag: {env: {name: FLAG}}`)
		i := bergtest.Instance(ctx, ns, "secretive", func(i *bergv1.ChallengeInstance) { i.Spec.Flag = flag })
		expect.Shows(ctx, i, bergv1.ConditionPodsReady, metav1.ConditionFalse, "ImagePullBackOff")
		quoted := strings.Join([]string{
			flag, password, shared, url.QueryEscape(flag), hex.EncodeToString([]byte(flag)), base64.StdEncoding.EncodeToString([]byte("x" + flag)), "password=hunter2hunter2",
		}, " ")
		Expect(apiserver.Client.Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "quotes"}, Type: "Warning", Reason: "Denied", Message: "denied: " + quoted + " (quoted by a webhook)",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: "web"}, LastTimestamp: metav1.Now(),
		})).To(Succeed())

		file := filepath.Join(GinkgoT().TempDir(), "report.tar.gz")
		written := run(ctx, "report", "--file", file, "--operator-namespace", system)
		Expect(written.code).To(Equal(0), written.err)
		info, err := os.Stat(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
		archive, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		files := unpack(archive)
		Expect(files).To(HaveKey("README.txt"))
		Expect(files["settings.json"]).To(And(ContainSubstring(`"value": "3h"`), ContainSubstring("not a setting of the operator"), ContainSubstring("may be a secret")))
		Expect(files["instances.json"]).To(And(ContainSubstring(i.Name), ContainSubstring("ImageUnavailable"), ContainSubstring(i.Spec.OwnerID)))
		Expect(files["pods.json"]).To(ContainSubstring("ImagePullBackOff"))
		Expect(files["challenges.json"]).To(And(ContainSubstring("berg.test/behaviour/image-pull"), MatchRegexp(`"dynamicFlag": \{\s*"env": \{\}`)))
		Expect(files["events.json"]).To(And(ContainSubstring("denied: "+redact.Mark), ContainSubstring("(quoted by a webhook)")))
		Expect(files["version.json"]).To(And(ContainSubstring("v0.1.0-test"), ContainSubstring("example.com/berg-operator:v0.1.0")))
		Expect(files["status.json"]).To(ContainSubstring("cannot be pulled"))
		for name, text := range files {
			for _, secret := range []string{flag, password, shared, "secret-domain.example.org", "proxy-password", "kafka-user", "hunter2hunter2", "harmless-value", "never in a report"} {
				Expect(redact.Text(text, secret)).To(Equal(text), "%s contains %q", name, secret)
			}
		}

		Expect(run(ctx, "report", "--file", file).code).To(Equal(2), "it replaces a file")
		Expect(unpack([]byte(run(ctx, "report", "--file", "-").out))).To(HaveKey("version.json"))
	})

	It("includes what a user may read, and names the rest", func(ctx context.Context) {
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "web", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "web")
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		r := run(ctx, "report", "--file", "-", "-n", ns, "--as", bindViewer(ctx, ns))
		Expect(r.code).To(Equal(0), r.err)
		files := unpack([]byte(r.out))
		Expect(files["instances.json"]).To(ContainSubstring(i.Name))
		Expect(files["README.txt"]).To(And(ContainSubstring("What is missing:"), ContainSubstring("you may not read nodes"), ContainSubstring("you may not read events")))
		Expect(r.out).NotTo(ContainSubstring(i.Spec.Flag))
	})
})
