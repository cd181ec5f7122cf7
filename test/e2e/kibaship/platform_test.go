package kibaship

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// platform is one Project, with what an administrator puts into it.
type platform struct{ project, namespace string }

func newPlatform(ctx context.Context, modify ...func(*kibashipv1.Project)) platform {
	GinkgoHelper()
	p := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: "p" + uuid.NewString()[:6], Labels: map[string]string{kibashipv1.LabelUUID: uuid.NewString()}}}
	for _, m := range modify {
		m(p)
	}
	Expect(world.Create(ctx, p)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(world.Delete(ctx, p))).To(Succeed())
		expect.GoneWithin(ctx, p, deployed.DeleteLimit)
	}, NodeTimeout(deployed.DeleteLimit))
	expect.ReachesWithin(ctx, p, kibashipv1.ProjectReady, deployed.ReactLimit)
	pl := platform{p.Name, p.Status.NamespaceName}
	authority, err := os.ReadFile(site.Authority)
	Expect(err).NotTo(HaveOccurred())
	Expect(world.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: pl.namespace, Name: authorityMap}, Data: map[string]string{"ca.crt": string(authority)},
	})).To(Succeed())
	pl.login(ctx, site.Login)
	return pl
}

// login writes the Secret for the registry, which is given as user:password.
func (p platform) login(ctx context.Context, login string) {
	GinkgoHelper()
	user, password, _ := strings.Cut(login, ":")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: loginSecret}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, site.Registry, user, password)},
	}
	Expect(client.IgnoreNotFound(world.Delete(ctx, secret.DeepCopy()))).To(Succeed())
	Expect(world.Create(ctx, secret)).To(Succeed())
}

func (p platform) token(ctx context.Context, name, token string) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: name}, StringData: map[string]string{"token": token}}
	Expect(client.IgnoreNotFound(world.Delete(ctx, secret.DeepCopy()))).To(Succeed())
	Expect(world.Create(ctx, secret)).To(Succeed())
}

// application creates an Application of a repository, organization/name.
func (p platform) application(ctx context.Context, repository string, modify ...func(*kibashipv1.GitRepository)) *kibashipv1.Application {
	GinkgoHelper()
	a := &kibashipv1.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "project-" + p.project + "-app-web-kibaship-com"},
		Spec: kibashipv1.ApplicationSpec{
			ProjectRef: kibashipv1.LocalReference{Name: p.project}, Type: kibashipv1.TypeGitRepository,
			GitRepository: &kibashipv1.GitRepository{Provider: kibashipv1.GitHub, Repository: repository, PublicAccess: true, Branch: "main"},
		},
	}
	for _, m := range modify {
		m(a.Spec.GitRepository)
	}
	Expect(world.Create(ctx, a)).To(Succeed())
	expect.ReachesWithin(ctx, a, kibashipv1.ApplicationReady, deployed.ReactLimit)
	return a
}

// private has a repository read with the token of a Secret.
func private(secret string) func(*kibashipv1.GitRepository) {
	return func(g *kibashipv1.GitRepository) {
		g.PublicAccess, g.SecretRef = false, &kibashipv1.LocalReference{Name: secret}
	}
}

func (p platform) deploy(ctx context.Context, a *kibashipv1.Application, commit string) *kibashipv1.Deployment {
	GinkgoHelper()
	d := &kibashipv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "project-" + p.project + "-app-web-deployment-live-kibaship-com"},
		Spec:       kibashipv1.DeploymentSpec{ApplicationRef: kibashipv1.LocalReference{Name: a.Name}},
	}
	if commit != "" {
		d.Spec.GitRepository = &kibashipv1.DeploymentSource{CommitSHA: commit}
	}
	Expect(world.Create(ctx, d)).To(Succeed())
	return d
}

// run starts a pod of an image, as a workload of the Project would, and returns what it says.
func (p platform) run(ctx context.Context, image string, command ...string) string {
	GinkgoHelper()
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, GenerateName: "runs-"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &no,
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: loginSecret}},
			Containers:       []corev1.Container{{Name: "main", Image: image, Command: command}},
		},
	}
	Expect(world.Create(ctx, pod)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(world.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.Phase).To(Equal(corev1.PodSucceeded), "%+v", pod.Status.ContainerStatuses)
	}).WithContext(ctx).WithTimeout(deployed.StartLimit).Should(Succeed())
	restConfig, err := config.GetConfig()
	Expect(err).NotTo(HaveOccurred())
	direct, err := kubernetes.NewForConfig(restConfig)
	Expect(err).NotTo(HaveOccurred())
	log, err := direct.CoreV1().Pods(p.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = log.Close() }()
	text, err := io.ReadAll(log)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// newRepository makes a bare one of some files, organization/name, and returns its commit. What else it holds is added in its work tree.
func newRepository(ctx context.Context, name string, files map[string]string, add ...func(work string)) (commit string) {
	GinkgoHelper()
	work := GinkgoT().TempDir()
	for file, content := range files {
		path := filepath.Join(work, file)
		Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
		Expect(os.WriteFile(path, []byte(content), 0o644)).To(Succeed())
	}
	bare := filepath.Join(site.Repositories, name+".git")
	Expect(os.RemoveAll(bare)).To(Succeed())
	git(ctx, work, "init", "--quiet", "--initial-branch=main")
	git(ctx, work, "add", ".")
	for _, a := range add {
		a(work)
	}
	git(ctx, work, "commit", "--quiet", "--message=first")
	git(ctx, work, "clone", "--quiet", "--bare", ".", bare)
	return strings.TrimSpace(git(ctx, work, "rev-parse", "HEAD"))
}

// Every commit has the same time, and so the same content the same commit.
const (
	commitTime = 1700000000
	commitDate = "@1700000000 +0000"
)

func git(ctx context.Context, dir string, args ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=author", "GIT_AUTHOR_EMAIL=author@example.com", "GIT_COMMITTER_NAME=author", "GIT_COMMITTER_EMAIL=author@example.com",
		"GIT_AUTHOR_DATE="+commitDate, "GIT_COMMITTER_DATE="+commitDate)
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "git %v: %s", args, out)
	return string(out)
}

// succeeds waits until a Deployment has built something.
func succeeds(ctx context.Context, d *kibashipv1.Deployment) {
	GinkgoHelper()
	ends(ctx, d, metav1.ConditionTrue, kibashipv1.ReasonSucceeded)
}

// ends waits until the run that a Deployment asks for has come to an end, for a reason.
func ends(ctx context.Context, d *kibashipv1.Deployment, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
		var found *metav1.Condition
		for i := range d.Status.Conditions {
			if d.Status.Conditions[i].Type == kibashipv1.ConditionSucceeded {
				found = &d.Status.Conditions[i]
			}
		}
		g.Expect(found).NotTo(BeNil())
		g.Expect(found.ObservedGeneration).To(Equal(d.Generation))
		if found.Status != status && found.Status != metav1.ConditionUnknown {
			StopTrying("it came to another end: " + found.Reason + ": " + found.Message).Now()
		}
		g.Expect(found.Status).To(Equal(status), "%s: %s", found.Reason, found.Message)
		g.Expect(found.Reason).To(Equal(reason), found.Message)
	}).WithContext(ctx).WithTimeout(buildLimit).Should(Succeed())
}
