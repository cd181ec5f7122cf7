package operator

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// manifestIn reads a manifest into a namespace.
func manifestIn(namespace, manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	o := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &o.Object)).To(Succeed())
	o.SetNamespace(namespace)
	if o.GetName() == "" {
		o.SetName("some")
	}
	return o
}

var _ = Describe("The API of each kind", Label("versions"), func() {
	DescribeTable("refuses a bad value in a sentence that names the field and what it must be",
		func(ctx context.Context, manifest, path, sentence string) {
			err := k8s.Create(ctx, manifestIn(bergtest.Namespace(ctx), manifest), client.DryRunAll)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err.Error()).To(And(ContainSubstring(path+": Invalid value"), ContainSubstring(sentence), Not(ContainSubstring("should match"))))
		},
		Entry("the host name of a container", `{apiVersion: berg.norelect.ch/v1, kind: Challenge, spec: {containers: [{hostname: Web_1, image: a}]}}`,
			"spec.containers[0].hostname", "hostname must have only lower-case letters, digits and dashes"),
		Entry("the name of a port", `{apiVersion: berg.norelect.ch/v1, kind: Challenge, spec: {containers: [{hostname: web, image: a, ports: [{name: "a b", port: 80}]}]}}`,
			"spec.containers[0].ports[0].name", "name of a port must have only letters"),
		Entry("a bandwidth", `{apiVersion: berg.norelect.ch/v1, kind: Challenge, spec: {containers: [{hostname: web, image: a, egressBandwidth: fast}]}}`,
			"spec.containers[0].egressBandwidth", "egressBandwidth must be a number of bits per second, for example 10M"),
		Entry("another bandwidth", `{apiVersion: berg.norelect.ch/v1, kind: Challenge, spec: {containers: [{hostname: web, image: a, ingressBandwidth: 10 M}]}}`,
			"spec.containers[0].ingressBandwidth", "ingressBandwidth must be a number of bits per second"),
		Entry("a capability", `{apiVersion: berg.norelect.ch/v1, kind: Challenge, spec: {containers: [{hostname: web, image: a, additionalCapabilities: [net-admin]}]}}`,
			"spec.containers[0].additionalCapabilities[0]", "a capability must have only upper-case letters"),
		Entry("the variable of a flag", `{apiVersion: berg.norelect.ch/v1, kind: Challenge, spec: {containers: [{hostname: web, image: a, dynamicFlag: {env: {name: "1FLAG"}}}]}}`,
			"spec.containers[0].dynamicFlag.env.name", "name of a variable must have only letters"),
		Entry("the path of a flag", `{apiVersion: berg.norelect.ch/v1, kind: Challenge, spec: {containers: [{hostname: web, image: a, dynamicFlag: {content: {path: flag.txt}}}]}}`,
			"spec.containers[0].dynamicFlag.content.path", "path must be absolute"),
		Entry("an owner", `{apiVersion: berg.norelect.ch/v1, kind: ChallengeInstance, spec: {challengeRef: {name: web}, ownerId: alice}}`,
			"spec.ownerId", "ownerId must be a UUID in lower case"),
		Entry("a timeout", `{apiVersion: berg.norelect.ch/v1, kind: ChallengeInstance, spec: {challengeRef: {name: web}, ownerId: 0190a5b4-7c1e-7d3a-9f52-3b6d8e1f4a70, timeout: 2 hours}}`,
			"spec.timeout", "timeout must be whole hours, minutes and seconds in this order"),
		Entry("the timeout of a check", `{apiVersion: berg.norelect.ch/v1, kind: ChallengeCheck, spec: {challengeRef: {name: web}, solver: {image: a}, timeout: soon}}`,
			"spec.timeout", "timeout must be whole hours, minutes and seconds"),
		Entry("the interval of a check", `{apiVersion: berg.norelect.ch/v1, kind: ChallengeCheck, spec: {challengeRef: {name: web}, solver: {image: a}, schedule: {every: daily}}}`,
			"spec.schedule.every", "schedule.every must be whole hours"),
		Entry("the time of a check", `{apiVersion: berg.norelect.ch/v1, kind: ChallengeCheck, spec: {challengeRef: {name: web}, solver: {image: a}, schedule: {beforeHideUntil: 1 day}}}`,
			"spec.schedule.beforeHideUntil", "schedule.beforeHideUntil must be whole hours"),
		Entry("the variable of a solver", `{apiVersion: berg.norelect.ch/v1, kind: ChallengeCheck, spec: {challengeRef: {name: web}, solver: {image: a, env: [{name: A-B}]}}}`,
			"spec.solver.env[0].name", "name of a variable must have only letters, digits and underscores"),
		Entry("an environment", `{apiVersion: quix.io/v1, kind: Environment, spec: {id: Team_Red}}`, "spec.id", "id must have only lower-case letters"),
		Entry("a network", `{apiVersion: usvc-dev.developer.microsoft.com/v1, kind: ContainerNetwork, spec: {networkName: My_Shop}}`, "spec.networkName", "networkName must have only lower-case letters"),
	)

	It("lists instances by owner, challenge and phase, and a bad selector is refused", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "web", bergtest.OneContainer)
		first, second := bergtest.Instance(ctx, ns, "web"), bergtest.Instance(ctx, ns, "missing")
		expect.Reaches(ctx, first, bergv1.PhaseRunning)
		expect.Reaches(ctx, second, bergv1.PhaseFailed)
		for field, value := range map[string]string{"spec.ownerId": first.Spec.OwnerID, "spec.challengeRef.name": "web", "status.phase": "Running"} {
			Expect(apiserver.Names(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(ns), client.MatchingFields{field: value})).To(ConsistOf(first.Name), field)
		}
		Expect(k8s.List(ctx, &bergv1.ChallengeInstanceList{}, client.MatchingFields{"spec.flag": "flag{guess}"})).NotTo(Succeed(), "flags can be guessed")
	})

	// The host name of a route has a UUID of 36 characters, and the domain: with it the address alone takes two thirds of them.
	It("shows an instance within 100 columns, with the address of its port", func(ctx context.Context) {
		ns := bergtest.Publish(ctx, "guestbook", `containers: [{hostname: web, image: "example.com/web:1", ports: [{name: web, port: 80, type: publicPort, appProtocol: http}]}]`)
		i := bergtest.Running(ctx, ns, "guestbook", func(i *bergv1.ChallengeInstance) { i.Name, i.GenerateName = "alice-guestbook", "" })
		lines := tableOf(ctx, "namespaces/"+ns+"/challengeinstances")
		GinkgoWriter.Println(strings.Join(lines, "\n"))
		Expect(lines).To(HaveLen(2))
		Expect(lines[1]).To(And(HavePrefix("alice-guestbook"), ContainSubstring("Running"), ContainSubstring(i.Status.Services[0].URL)))
		for _, line := range lines {
			Expect(len(line)).To(BeNumerically("<=", 100), line)
		}
	})
})

// tableOf returns the lines that kubectl get shows of a resource, from the table that the API server makes.
func tableOf(ctx context.Context, resource string) []string {
	GinkgoHelper()
	config := rest.CopyConfig(restConfig)
	config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &bergv1.GroupVersion, "/apis", scheme.Codecs.WithoutConversion()
	raw, err := rest.RESTClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	text, err := raw.Get().AbsPath("/apis/berg.norelect.ch/v1/"+resource).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	var table metav1.Table
	Expect(yaml.Unmarshal(text, &table)).To(Succeed())
	var rows [][]string
	header := []string{}
	for _, column := range table.ColumnDefinitions {
		if column.Priority == 0 {
			header = append(header, strings.ToUpper(column.Name))
		}
	}
	rows = append(rows, header)
	for _, row := range table.Rows {
		cells := []string{}
		for n, cell := range row.Cells {
			if table.ColumnDefinitions[n].Priority > 0 {
				continue
			}
			if cell == nil {
				cell = ""
			}
			cells = append(cells, fmt.Sprint(cell))
		}
		rows = append(rows, cells)
	}
	widths := make([]int, len(header))
	for _, row := range rows {
		for n, cell := range row {
			widths[n] = max(widths[n], len(cell))
		}
	}
	var lines []string
	for _, row := range rows {
		var line strings.Builder
		for n, cell := range row {
			fmt.Fprintf(&line, "%-*s   ", widths[n], cell)
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}
