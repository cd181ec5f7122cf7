package bergtest

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// Misbehaving is the spec of a Challenge whose pod behaves as the simulated nodes
// let it: not-ready, crash, image-pull.
func Misbehaving(how string) string {
	return `containers: [{hostname: web, image: "berg.test/behaviour/` + how + `:1"}]`
}

// NeverReady asks for more than any simulated node has: its pod stays unschedulable.
const NeverReady = `containers: [{hostname: web, image: "example.com/web:1", resourceRequests: {memory: 200Ti}, resourceLimits: {memory: 200Ti}}]`

// Parse decodes YAML, and refuses fields that into does not have.
func Parse(text string, into any) {
	GinkgoHelper()
	Expect(yaml.UnmarshalStrict([]byte(text), into)).To(Succeed())
}
