package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/bergctf/berg-operator/test/lib/bergtest"
)

// v1 is a client of the API's own endpoint that validates every answer against the OpenAPI document that the API serves.
type v1 struct {
	url      string
	document map[string]any
	compiler *jsonschema.Compiler
}

func newV1(ctx context.Context, url string) *v1 {
	GinkgoHelper()
	c := &v1{url: url, compiler: jsonschema.NewCompiler()}
	c.document = c.plain(ctx, "GET", "/v1/openapi.json", "").json()
	Expect(c.document).To(HaveKeyWithValue("openapi", "3.1.0"))
	text, err := json.Marshal(c.document)
	Expect(err).NotTo(HaveOccurred())
	resource, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	Expect(err).NotTo(HaveOccurred())
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	Expect(c.compiler.AddResource("openapi.json", resource)).To(Succeed())
	return c
}

func (c *v1) plain(ctx context.Context, method, path, body string) answer {
	GinkgoHelper()
	return call(ctx, method, c.url+path, body, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+tokensOf["v1"]) })
}

// call sends a request to a path of the document, with its parameters, and validates the answer.
func (c *v1) call(ctx context.Context, method, template, body string, parameters ...string) answer {
	GinkgoHelper()
	path := template
	for n := 0; n+1 < len(parameters); n += 2 {
		path = strings.ReplaceAll(path, "{"+parameters[n]+"}", parameters[n+1])
	}
	got := c.plain(ctx, method, path, body)
	operation := c.document["paths"].(map[string]any)[template].(map[string]any)[strings.ToLower(method)].(map[string]any)
	Expect(operation["responses"]).To(HaveKey(fmt.Sprint(got.Status)), got.Body)
	pointer := "openapi.json#/paths/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(template) + "/" + strings.ToLower(method) +
		"/responses/" + fmt.Sprint(got.Status) + "/content/application~1json/schema"
	pointer = strings.NewReplacer("{", "%7B", "}", "%7D").Replace(pointer)
	schema, err := c.compiler.Compile(pointer)
	Expect(err).NotTo(HaveOccurred())
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(got.Body))
	Expect(err).NotTo(HaveOccurred())
	Expect(schema.Validate(value)).To(Succeed(), "%s %s: %s", method, path, got.Body)
	return got
}

var _ = Describe("The API's own endpoint", func() {
	It("answers as its OpenAPI document says, and streams every change", func(ctx context.Context) {
		const one = "/v1/instances/{challenge}/{source}"
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", oneFlag)
		a := begin(ctx, ns, 2, nil)
		c := newV1(ctx, a.proxy.URL)

		lines := stream(ctx, a.replicas[0].http.URL+"/v1/events", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+tokensOf["v1"]) })

		Expect(c.call(ctx, "GET", "/v1/challenges", "").json()).To(HaveKeyWithValue("challenges", ConsistOf("guestbook")))
		of := []string{"challenge", "guestbook", "source", "team-1"}
		Expect(c.call(ctx, "GET", one, "", of...).Status).To(Equal(404))
		Expect(c.call(ctx, "PUT", one, "", "challenge", "nothing", "source", "team-1").Status).To(Equal(400))
		Expect(c.call(ctx, "PUT", one, `{"timeoutSeconds":-1}`, of...).Status).To(Equal(400))
		Expect(c.call(ctx, "PUT", one, `{"flag":"flag{mine}","timeoutSeconds":600}`, of...).Status).To(Equal(201))
		running := c.call(ctx, "PUT", one, `{"waitSeconds":45}`, of...)
		Expect(running.Status).To(Equal(200))
		Expect(running.json()).To(And(HaveKeyWithValue("state", "running"), HaveKey("until")))
		Expect(running.Body).NotTo(ContainSubstring("flag{mine}"))
		Expect(c.call(ctx, "GET", one+"/flag", "", of...).json()).To(HaveKeyWithValue("flags", ConsistOf("flag{mine}")))
		Expect(c.call(ctx, "GET", "/v1/instances", "").json()["instances"]).To(HaveLen(1))
		Expect(c.call(ctx, "PATCH", one, `{}`, of...).Status).To(Equal(400))
		Expect(c.call(ctx, "PATCH", one, `{"timeoutSeconds":3600}`, of...).Status).To(Equal(200))
		Expect(c.call(ctx, "DELETE", one, "", of...).Status).To(Equal(200))
		Expect(c.call(ctx, "DELETE", one, "", of...).Status).To(Equal(404))

		var seen []string
		Eventually(func() []string {
			for {
				select {
				case line := <-lines:
					seen = append(seen, line)
					continue
				default:
				}
				return seen
			}
		}).Should(ContainElement("event: gone"))
		Expect(seen).To(And(ContainElement("event: instance"), ContainElement(ContainSubstring(`"state":"running"`)), Not(ContainElement(ContainSubstring("flag{mine}")))))
	})
})

var _ = Describe("The Berg platform", func() {
	It("creates, reads, lists, watches and deletes instances without a namespace", func(ctx context.Context) {
		const path = "/apis/berg.norelect.ch/v1/challengeinstances"
		ns, other := bergtest.Namespace(ctx), bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", bergtest.OneContainer)
		bergtest.Challenge(ctx, other, "guestbook", bergtest.OneContainer)
		foreign := bergtest.Instance(ctx, other, "guestbook")
		a := begin(ctx, ns, 1, nil)
		k := func(method, path, body string) answer {
			return call(ctx, method, a.proxy.URL+path, body, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+tokensOf["berg"]) })
		}
		created := k("POST", path, fmt.Sprintf(`{"apiVersion":"berg.norelect.ch/v1","kind":"ChallengeInstance","metadata":{"name":"mine"},
			"spec":{"challengeRef":{"name":"guestbook","namespace":%q},"ownerId":"0f8fad5b-d9cb-469f-a165-70867728950e","flag":"flag{x}"}}`, ns))
		Expect(created.Status).To(Equal(201), created.Body)
		Expect(created.json()["metadata"]).To(HaveKeyWithValue("namespace", ns))
		Eventually(func() string { return k("GET", path+"/mine", "").Body }).Should(And(ContainSubstring(`"phase":"Running"`), ContainSubstring("instanceId")))
		listed := k("GET", path, "")
		Expect(listed.Status).To(Equal(200))
		Expect(listed.json()["items"]).To(HaveLen(1), "it lists those of another namespace")
		watched := k("GET", path+"?watch=true&timeoutSeconds=1", "")
		Expect(watched.Status).To(Equal(200))
		Expect(watched.Body).To(And(ContainSubstring(`"mine"`), Not(ContainSubstring(foreign.Name))))
		Expect(k("DELETE", path+"/mine", "").Status).To(Equal(200))
		Eventually(func() int { return k("GET", path+"/mine", "").Status }).Should(Equal(404))

		for what, got := range map[string]answer{
			"another namespace": k("GET", "/apis/berg.norelect.ch/v1/namespaces/"+other+"/challengeinstances", ""),
			"a Secret":          k("GET", "/api/v1/namespaces/"+ns+"/secrets", ""),
			"all ConfigMaps":    k("GET", "/apis/../api/v1/configmaps", ""),
			"a subresource":     k("GET", path+"/mine/status", ""),
			"an escaped path":   k("GET", path+"/..%2f..%2f..%2f..%2fapi%2fv1%2fsecrets", ""),
			"a patch":           k("PATCH", path+"/mine", "{}"),
		} {
			Expect(got.Status).To(BeNumerically(">=", 400), what)
			Expect(got.Status).To(BeNumerically("<", 500), what)
		}
	})
})
