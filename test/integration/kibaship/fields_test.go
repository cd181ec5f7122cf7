package kibaship

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
)

// Texts that would be another path, URL, reference or argument than their author was given.
var (
	outside = []string{"..", "../x", "a/..", "a/../b", "/../etc", "a/../../b", "a\nb", "a\x00b", "a/$(params.x)"}
	noRefs  = []string{"..", "a..b", "a//b", "a/", ".a", "a/.b", "a.lock", "a.lock/b", "a.", "-a", "a b", "a:b", "a\nb", "$(x)", "a~1", "a^{}"}
	noNames = []string{"..", "../x", "a/b", "-a", "A", "a b", "a?b", "a%2fb", "a\n"}
)

var _ = Describe("A field that becomes a part of a path, a URL, a reference or an argument", func() {
	application := func(field func(*kibashipv1.Application) *string) func(project, value string) client.Object {
		return func(project, value string) client.Object {
			return kibashiptest.NewApplication(project, "fields", func(a *kibashipv1.Application) { *field(a) = value })
		}
	}
	source := func(field func(*kibashipv1.GitRepository) *string) func(project, value string) client.Object {
		return application(func(a *kibashipv1.Application) *string {
			kibashiptest.Public(a)
			return field(a.Spec.GitRepository)
		})
	}
	deployment := func(field func(*kibashipv1.DeploymentSource) *string) func(project, value string) client.Object {
		return func(project, value string) client.Object {
			d := kibashiptest.NewDeployment(project, "web", "fields")
			d.Spec.GitRepository = &kibashipv1.DeploymentSource{}
			*field(d.Spec.GitRepository) = value
			return d
		}
	}
	DescribeTable("is refused by the schema, which names it", func(ctx context.Context, with func(project, value string) client.Object, name string, good, bad []string) {
		p := kibashiptest.Ready(ctx)
		for _, value := range good {
			Expect(k8s.Create(ctx, with(p.Name, value), client.DryRunAll)).To(Succeed(), "%q", value)
		}
		for _, value := range bad {
			err := k8s.Create(ctx, with(p.Name, value), client.DryRunAll)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%q: %v", value, err)
			Expect(err).To(MatchError(ContainSubstring(name)), "%q", value)
		}
	},
		Entry("repository", source(func(g *kibashipv1.GitRepository) *string { return &g.Repository }), "spec.gitRepository.repository",
			[]string{"team/web", "team/.github", "te..am/we..b", "t/web.git"},
			[]string{"../..", "../web", "team/..", "./web", "team/.", "team/.git", "/web", "team/", "team/web/x", "team/web?x", "team/we%2e", "team/w b", "team/web\n"}),
		Entry("branch", source(func(g *kibashipv1.GitRepository) *string { return &g.Branch }), "spec.gitRepository.branch",
			[]string{"main", "feature/login", "release-1.2", "a+b@c#d"}, noRefs),
		Entry("path", source(func(g *kibashipv1.GitRepository) *string { return &g.Path }), "spec.gitRepository.path", []string{"/", "a/b", "./a", "..a/b..", "/a/"}, outside),
		Entry("root directory", source(func(g *kibashipv1.GitRepository) *string { return &g.RootDirectory }), "spec.gitRepository.rootDirectory",
			[]string{"./", "a b/c"}, outside),
		Entry("Dockerfile", source(func(g *kibashipv1.GitRepository) *string { return &g.DockerfilePath }), "spec.gitRepository.dockerfilePath",
			[]string{"docker/web.Dockerfile"}, outside),
		Entry("output", source(func(g *kibashipv1.GitRepository) *string { return &g.SPAOutputDirectory }), "spec.gitRepository.spaOutputDirectory", []string{"dist"}, outside),
		Entry("Secret of the token", source(func(g *kibashipv1.GitRepository) *string {
			g.SecretRef = &kibashipv1.LocalReference{}
			return &g.SecretRef.Name
		}), "spec.gitRepository.secretRef.name", []string{"git", "a.b-c"}, noNames),
		Entry("Secret of an image", application(func(a *kibashipv1.Application) *string {
			a.Spec.DockerImage.ImagePullSecretRef = &kibashipv1.LocalReference{}
			return &a.Spec.DockerImage.ImagePullSecretRef.Name
		}), "spec.dockerImage.imagePullSecretRef.name", []string{"pull"}, noNames),
		Entry("image", application(func(a *kibashipv1.Application) *string { return &a.Spec.DockerImage.Image }), "spec.dockerImage.image",
			[]string{"nginx", "registry.example.org:5000/team/app:1.2", "[fd00::1]:5000/app"},
			[]string{"../app", "team/../app", "team//app", "team/./app", "app/", "app?x", "-app", "a b", "https://example.org/app", "app\n", "app#x", "app%2e"}),
		Entry("tag of an image", application(func(a *kibashipv1.Application) *string { return &a.Spec.DockerImage.Tag }), "spec.dockerImage.tag",
			[]string{"1.2"}, []string{"../x", "a/b", "-a", "a b", "a:b", "a@b", "a\n"}),
		Entry("branch of a build", deployment(func(s *kibashipv1.DeploymentSource) *string { return &s.Branch }), "spec.gitRepository.branch", []string{"main"}, noRefs),
		Entry("tag of a build", deployment(func(s *kibashipv1.DeploymentSource) *string { return &s.Tag }), "spec.gitRepository.tag", []string{"v1.2.0"}, noRefs),
		Entry("commit of a build", deployment(func(s *kibashipv1.DeploymentSource) *string { return &s.CommitSHA }), "spec.gitRepository.commitSHA",
			[]string{"0123456789012345678901234567890123456789"}, []string{"..", "HEAD", "main", "abc", "0123456789012345678901234567890123456789\n", "../6789012345678901234567890123456789012345"}),
		Entry("pattern of branches", source(func(g *kibashipv1.GitRepository) *string {
			g.AutoBuild = &kibashipv1.AutoBuild{Enabled: true, Branches: []string{""}}
			return &g.AutoBuild.Branches[0]
		}), "spec.gitRepository.autoBuild.branches[0]", []string{"main", "release/*", "v[0-9]?"}, []string{"-a", "/a", "../a", "a b", "a:b", "$(x)", "a\nb", "a^{}"}),
		Entry("pattern of tags", source(func(g *kibashipv1.GitRepository) *string {
			g.AutoBuild = &kibashipv1.AutoBuild{Enabled: true, Tags: []string{""}}
			return &g.AutoBuild.Tags[0]
		}), "spec.gitRepository.autoBuild.tags[0]", []string{"v*"}, []string{"-a", "/a", "../a", "a b", "a:b", "$(x)", "a\nb", "a^{}"}),
	)
})
