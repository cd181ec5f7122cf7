package docs

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// namesakes are CRDs of others whose kinds have names of ours: those of cert-manager and of OpenShift.
var namesakes = []string{`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: challenges.acme.cert-manager.io}
spec:
  group: acme.cert-manager.io
  scope: Namespaced
  names: {plural: challenges, singular: challenge, kind: Challenge, listKind: ChallengeList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: projects.project.openshift.io
spec:
  group: project.openshift.io
  scope: Cluster
  names: {plural: projects, singular: project, kind: Project, listKind: ProjectList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: applications.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {plural: applications, singular: application, kind: Application, listKind: ApplicationList, shortNames: [app]}
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`}

// elsewhere begins the names of kinds that this cluster does not have: those of OLM, in both versions, and of the Prometheus operator.
var elsewhere = regexp.MustCompile(`^(csv|subscriptions?|catalogsources?|olmconfigs?|clusterserviceversions|clusterextensions?|clustercatalogs?|operators|prometheus|servicemonitor)\b`)

// explained is what a page has kubectl explain, also in a table.
var explained = regexp.MustCompile(`kubectl explain ([a-z.-]+[a-zA-Z]+)`)

// absent is what kubectl says of an object, or of a file of the reader, that is not there.
var absent = regexp.MustCompile(`\(NotFound\)|not found|no matching resources found|no such file or directory|^no\s*$`)

var _ = Describe("The commands of the documentation", func() {
	It("are understood by kubectl, and name one kind each, in a cluster with the kinds of others", func(ctx context.Context) {
		for _, text := range namesakes {
			definition := apiserver.Object(text)
			apiserver.InstallDefinition(ctx, definition)
			DeferCleanup(func(ctx context.Context) { Expect(k8s.Delete(ctx, definition)).To(Succeed()) })
		}
		client, err := discovery.NewDiscoveryClientForConfig(apiserver.Config)
		Expect(err).NotTo(HaveOccurred())
		cached := memory.NewMemCacheClient(client)
		mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
		// kubectl must not take an older list of kinds from its cache.
		environment := append(os.Environ(), "KUBECACHEDIR="+GinkgoT().TempDir())

		kubectl := func(args ...string) (string, error) {
			command := exec.CommandContext(ctx, "kubectl", args...)
			command.Env = environment
			out, err := command.CombinedOutput()
			return string(out), err
		}

		tried := map[string]bool{}
		for _, page := range pages() {
			text, err := os.ReadFile(page)
			Expect(err).NotTo(HaveOccurred())
			for _, m := range shellBlock.FindAllStringSubmatch("\n"+string(text), -1) {
				for _, args := range callsOfKubectl(m[1]) {
					line := strings.Join(args, " ")
					if args = harmless(args); args == nil || tried[line] {
						continue
					}
					tried[line] = true
					for _, name := range kinds(args) {
						Expect(choices(mapper, name)).To(BeEmpty(), "%s: kubectl %s: %s means several kinds: name the API group", page, line, name)
					}
					out, err := kubectl(args...)
					Expect(err == nil || absent.MatchString(out)).To(BeTrue(), "%s: kubectl %s: %s", page, line, out)
				}
			}
			for _, m := range explained.FindAllStringSubmatch(string(text), -1) {
				tried[m[0]] = true
				out, err := kubectl("explain", m[1])
				Expect(err).NotTo(HaveOccurred(), "%s: kubectl explain %s: %s", page, m[1], out)
				Expect(out).To(ContainSubstring("GROUP:      berg.norelect.ch"), "%s: kubectl explain %s", page, m[1])
			}
		}
		Expect(len(tried)).To(BeNumerically(">=", 120))
	}, SpecTimeout(limits.Scaled(10*time.Minute)))
})

// harmless returns the arguments of a call that changes nothing and ends soon, and checks the same words; nil if there is none.
func harmless(args []string) []string {
	verb, rest := verbOf(args)
	if named := kinds(args); len(named) > 0 && (elsewhere.MatchString(named[0]) || named[0] == unknown) {
		return nil
	}
	with := func(more ...string) []string { return append(slices.Clone(args), more...) }
	switch verb {
	case "get":
		return with("--watch=false")
	case "describe", "auth", "logs":
		return args
	case "wait":
		return with("--timeout=1s")
	case "patch", "annotate", "label", "scale", "set":
		return with("--dry-run=server")
	case "delete":
		if slices.Contains(args, "-f") || slices.Contains(args, "-k") {
			return nil // of files, which a test of the files compares
		}
		return with("--dry-run=server")
	case "create":
		if rest == "token" {
			return nil
		}
		return with("--dry-run=client", "--output=name")
	case "rollout":
		return with()
	default: // plugins, what goes on until it is interrupted, and files
		return nil
	}
}

// withValue are options whose value is the next word.
var withValue = []string{"-n", "--namespace", "-l", "--selector", "-f", "-k", "-o", "-p", "--type", "--field-selector", "--raw", "--tail"}

// positional returns the words that are neither options nor values of options.
func positional(args []string) (words []string) {
	for i := 0; i < len(args); i++ {
		switch {
		case slices.Contains(withValue, args[i]):
			i++
		case !strings.HasPrefix(args[i], "-"):
			words = append(words, args[i])
		}
	}
	return words
}

// verbOf returns the verb of a call of kubectl, and the word after it.
func verbOf(args []string) (verb, next string) {
	words := append(positional(args), "", "")
	return words[0], words[1]
}

// kinds returns the words of a call that name kinds.
func kinds(args []string) (named []string) {
	words := positional(args)
	if len(words) == 0 {
		return nil
	}
	switch words[0] {
	case "get", "describe", "wait", "patch", "annotate", "label", "scale", "delete":
		words = words[1:]
	case "rollout", "set":
		words = words[min(2, len(words)):]
	default:
		return nil
	}
	if len(words) == 0 {
		return nil // such as get --raw
	}
	for name := range strings.SplitSeq(words[0], ",") {
		name, _, _ = strings.Cut(name, "/")
		named = append(named, name)
	}
	return named
}

// choices returns the kinds that a name may mean, if kubectl chooses by an order that other products change: one of them is ours, and
// Kubernetes has none of that name.
func choices(mapper meta.RESTMapper, name string) []schema.GroupVersionResource {
	GinkgoHelper()
	all, err := mapper.ResourcesFor(schema.ParseGroupResource(name).WithVersion(""))
	Expect(err).NotTo(HaveOccurred(), name)
	ours := map[string]bool{}
	for _, f := range families.All() {
		ours[f.API] = true
	}
	mayBeOurs := slices.ContainsFunc(all, func(r schema.GroupVersionResource) bool { return ours[r.Group] })
	if first := all[0].Group; len(all) == 1 || !mayBeOurs || !strings.Contains(first, ".") || strings.HasSuffix(first, ".k8s.io") {
		return nil
	}
	return all
}

// unknown stands for what only a shell knows: the value of a variable, or what a command prints.
const unknown = "x"

// callsOfKubectl returns the arguments of each call of kubectl in a block of commands, also of those within others.
func callsOfKubectl(block string) [][]string {
	block = strings.ReplaceAll(block, "\\\n", " ")
	block = regexp.MustCompile(`(?s)<<'EOF'\n.*?\nEOF`).ReplaceAllString(block, "")
	s := shell{text: block}
	s.list()
	return s.calls
}

// shell reads commands as far as pages use the language of a shell.
type shell struct {
	text  string
	at    int
	calls [][]string
}

// list reads commands up to the end of the text, or of the parenthesis that they are in.
func (s *shell) list() {
	var words []string
	var word strings.Builder
	inWord, redirected := false, false
	endWord := func() {
		if inWord && !redirected {
			words = append(words, word.String())
		}
		if inWord {
			redirected = false
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if at := slices.Index(words, "kubectl"); at >= 0 {
			call := slices.Clone(words[at+1:])
			if slices.Contains(words[:at], "xargs") && !slices.Contains(call, "{}") {
				call = append(call, unknown)
			}
			s.calls = append(s.calls, call)
		}
		words = nil
	}
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch c {
		case ')':
			endCommand()
			return
		case '\n', ';', '|', '&':
			endCommand()
		case ' ', '\t':
			endWord()
		case '<', '>':
			endWord()
			redirected = true
		case '#':
			if inWord {
				word.WriteByte(c)
				continue
			}
			for s.at < len(s.text) && s.text[s.at] != '\n' {
				s.at++
			}
		default:
			s.part(c, &word)
			inWord = true
		}
	}
	endCommand()
}

// part reads a part of a word that begins with a character.
func (s *shell) part(c byte, word *strings.Builder) {
	switch c {
	case '\'':
		text, _, _ := strings.Cut(s.text[s.at:], "'")
		word.WriteString(text)
		s.at += len(text) + 1
	case '"':
		for s.at < len(s.text) && s.text[s.at] != '"' {
			s.at++
			if c := s.text[s.at-1]; c == '\\' || c == '$' {
				s.part(c, word)
			} else {
				word.WriteByte(c)
			}
		}
		s.at++
	case '\\':
		word.WriteByte(s.text[s.at])
		s.at++
	case '$':
		word.WriteString(unknown)
		if strings.HasPrefix(s.text[s.at:], "(") {
			s.at++
			s.list()
			return
		}
		s.at += len(regexp.MustCompile(`^(\{\w+\}|\w+)`).FindString(s.text[s.at:]))
	default:
		word.WriteByte(c)
	}
}
