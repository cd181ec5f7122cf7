package kibaship

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
)

// What the author of a Dockerfile has run in a build is written to a file of the image, which a
// pod then shows.
var _ = Describe("An author whose code runs in a build", Label("attack"), func() {
	It("finds no token of a ServiceAccount", func(ctx SpecContext) {
		Expect(attack(ctx, searchToken)).To(BeEmpty())
	}, SpecTimeout(2*buildLimit))

	It("finds no token of the git server", func(ctx SpecContext) {
		Expect(attack(ctx, search(site.Token))).To(Equal(planted))
	}, SpecTimeout(2*buildLimit))

	It("finds no login of the registry", func(ctx SpecContext) {
		_, password, _ := strings.Cut(site.Login, ":")
		Expect(attack(ctx, search(password)+`; find / -path /proc -prune -o -name '*dockerconfig*' -print`)).To(Equal(planted))
	}, SpecTimeout(2*buildLimit))

	It("cannot forge the commit, nor the digest", func(ctx SpecContext) {
		// What could be written in vain is no loot: attack looks at what the status says.
		attack(ctx, forgery())
	}, SpecTimeout(2*buildLimit))
})

var _ = Describe("An author whose code fills the node", Label("attack"), Serial, func() {
	It("is stopped where the bound of the clone and its image is", func(ctx SpecContext) {
		deployed.SetVariable(ctx, "BUILD_STORAGE_SIZE", "64Mi")
		DeferCleanup(func(ctx SpecContext) { deployed.SetVariable(ctx, "BUILD_STORAGE_SIZE", "24Gi") }, NodeTimeout(deployed.StartLimit))
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{
			// It is looked at what a directory holds every few seconds.
			"Dockerfile": "FROM registry.berg.test/base:1\nRUN dd if=/dev/zero of=/workspace/source/filled bs=1M count=256 && sleep 120\n",
		})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
		Expect(d.Status.Message).To(And(ContainSubstring("exceeds the limit"), ContainSubstring("BUILD_STORAGE_SIZE")))
	}, SpecTimeout(3*buildLimit))

	It("gets no more memory than the step that builds may have", func(ctx SpecContext) {
		deployed.SetVariable(ctx, "BUILD_LIMITS", "memory=256Mi")
		DeferCleanup(func(ctx SpecContext) {
			deployed.SetVariable(ctx, "BUILD_LIMITS", "cpu=2,memory=4Gi,ephemeral-storage=48Gi")
		}, NodeTimeout(deployed.StartLimit))
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{
			"Dockerfile": "FROM registry.berg.test/base:1\nRUN dd if=/dev/zero of=/dev/null bs=1G count=1\n",
		})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		// The kernel ends the greediest process: kaniko, or dd, whose end is that of the build.
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
	}, SpecTimeout(3*buildLimit))
})

// attack builds an image in which a script ran, and returns what it printed.
func attack(ctx SpecContext, script string) (loot string) {
	GinkgoHelper()
	p := newPlatform(ctx)
	p.token(ctx, "git", site.Token)
	commit := newRepository(ctx, "private/"+p.project, map[string]string{
		"Dockerfile": "FROM registry.berg.test/base:1\nCOPY attack /attack\nRUN sh /attack >/loot 2>/dev/null; true\nCMD [\"cat\",\"/loot\"]\n",
		"attack":     "echo began\n" + script + "\n",
	})
	d := p.deploy(ctx, p.application(ctx, "private/"+p.project, private("git")), "")
	succeeds(ctx, d)
	Expect(d.Status.BuiltImage.CommitSHA).To(Equal(commit), "the commit that the status tells is not the one that was cloned")
	text := p.run(ctx, d.Status.BuiltImage.Reference)
	Expect(text).To(HavePrefix("began"), "the attack did not run")
	return strings.TrimSpace(strings.TrimPrefix(text, "began"))
}

// searchToken is a script that looks for the token of a ServiceAccount.
const searchToken = `find / -path /proc -prune -o -path '*serviceaccount*' -name token -print; cat /var/run/secrets/kubernetes.io/serviceaccount/token`

// forgery is a script that writes a commit and a digest of its own wherever results may be.
func forgery() string {
	fake := strings.Repeat("6", 40)
	return `mkdir -p /tekton/results
for f in /tekton/results/commit /tekton/steps/step-clone/results/commit /tekton/steps/clone/results/commit /tekton/run/*/status/results/commit; do
	mkdir -p "$(dirname $f)"; printf ` + fake + ` >$f
done
for f in /tekton/results/digest /tekton/steps/step-push/results/digest /tekton/run/*/status/results/digest; do printf sha256:` + fake + ` >$f; done`
}

// planted is what search finds wherever it works.
const planted = "/tmp/planted"

// search is a script that looks for a secret in all that is shared with the step that builds,
// and in the processes that it sees. It names it so that it does not find itself.
func search(secret string) string {
	pattern := "[" + secret[:1] + "]" + secret[1:]
	return "printf '%s%s' " + secret[:1] + " " + secret[1:] + " >" + planted + `
grep -rl '` + pattern + `' /workspace /tekton /tmp /kaniko /root
cat /proc/*/environ /proc/*/cmdline | tr '\0' '\n' | grep '` + pattern + `'`
}
