package importer

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/yamlnode"
)

func isKCTF(content []byte) bool { return bytes.Contains(content, []byte("kctf.dev/")) }

// kctfPort is the port of a challenge of kCTF that names none.
const kctfPort = 1337

// kctfChallenge has the fields of kCTF's kind Challenge that the importer reads.
type kctfChallenge struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Image                string `json:"image"`
		PowDifficultySeconds int    `json:"powDifficultySeconds"`
		Network              struct {
			Public bool `json:"public"`
			Ports  []struct {
				Protocol   string `json:"protocol"`
				TargetPort int32  `json:"targetPort"`
			} `json:"ports"`
		} `json:"network"`
		Healthcheck struct {
			Enabled bool `json:"enabled"`
		} `json:"healthcheck"`
		PodTemplate struct {
			Template struct {
				Spec corev1.PodSpec `json:"spec"`
			} `json:"template"`
		} `json:"podTemplate"`
	} `json:"spec"`
}

// kctfFields are the fields of a spec that are carried over or irrelevant.
var kctfFields = []string{"deployed", "image", "network", "powDifficultySeconds", "healthcheck", "podTemplate", "imageTemplate"}

// kctfReasons explain fields that a Challenge does not have, and name the alternative.
var kctfReasons = map[string]string{
	"horizontalPodAutoscalerSpec": "each player has an instance of their own, so that nothing has to be scaled",
	"persistentVolumeClaims":      reasons["volumes"],
	"defaultDuration":             "a time is part of each instance: set spec.timeout of the ChallengeInstance, or CHALLENGE_INSTANCE_TIMEOUT",
	"domainName":                  "host names are below the domain of the operator, CHALLENGE_DOMAIN",
	"gatewayName":                 "the Gateway is that of the operator, GATEWAY_NAME",
	"allowConnectTo":              "containers of an instance reach each other only",
}

// kctfMain is the name of the container in a pod template that has the image of the challenge.
const kctfMain = "challenge"

// kctf imports a challenge of kCTF, whose image is built in the folder challenge.
func (out *Result) kctf(file string, content []byte, o Options) error {
	var k kctfChallenge
	documents, err := parseDocuments(content)
	main := slices.IndexFunc(documents, func(each document) bool { return isKCTF(each.text) })
	if err == nil && main < 0 {
		_, err = parseYAML(content)
		err = cmp.Or(err, ErrNothing)
	}
	if err == nil {
		err = yaml.Unmarshal(documents[main].text, &k)
	}
	if err != nil {
		return fmt.Errorf("%s: must be a challenge of kCTF in YAML: %s", file, typeError(err))
	}
	d := out.draft(file, k.Metadata.Name, o)
	spec := yamlnode.Child(documents[main].root, "spec")
	s := &service{name: d.challenge.Name, node: spec}
	d.services = append(d.services, s)
	d.kctfPod(k.Spec.PodTemplate.Template.Spec, yamlnode.Child(yamlnode.Child(yamlnode.Child(spec, "podTemplate"), "template"), "spec"))
	for _, name := range []string{"challenge/Dockerfile", "Dockerfile"} {
		file := filepath.Join(filepath.Dir(file), filepath.FromSlash(name))
		if s.build == nil && out.files.isFile(file) {
			s.build = &Build{Context: filepath.Dir(file)}
			d.readDockerfile(s, "image", file, filepath.Dir(file), "")
		}
	}
	if s.build == nil {
		s.named = k.Spec.Image
	}
	for _, p := range k.Spec.Network.Ports {
		s.published = append(s.published, port{number: cmp.Or(p.TargetPort, kctfPort), http: p.Protocol == "HTTPS", tcp: p.Protocol != "HTTPS"})
	}
	if len(s.published) == 0 {
		s.published = []port{{number: kctfPort, tcp: true}}
	}
	for n, other := range documents {
		if n != main {
			d.kctfRoute(s, other.root)
		}
	}
	if k.Spec.PowDifficultySeconds > 0 {
		d.lost(s, "powDifficultySeconds", fmt.Sprint(k.Spec.PowDifficultySeconds), "no proof of work is asked: each player has an instance of their own")
	}
	if k.Spec.Healthcheck.Enabled {
		d.lost(s, "healthcheck", "", "write a ChallengeCheck with a solver in its place (docs/berg/challengecheck.md)")
	}
	d.kctfRest(s, spec)
	return d.finish()
}

// kctfRoute reads an object next to a challenge: a route says how players reach its port.
func (d *draft) kctfRoute(s *service, root *yamlv3.Node) {
	kind := fieldText(root, "kind")
	if fieldText(root, "apiVersion") == "" || kind == "" {
		return
	}
	web := slices.Contains([]string{"Ingress", "IngressRoute", "HTTPRoute"}, kind)
	secure := kind == "TLSRoute" || kind == "IngressRouteTCP" && yamlnode.Child(yamlnode.Child(root, "spec"), "tls") != nil
	message := "is left out: write its content into the Challenge, or into the image"
	if (web || secure) && len(s.published) == 1 {
		s.published[0].http, s.published[0].tls, s.published[0].tcp = web, secure, false
		message = "is left out: the operator makes a route of the type of the port"
	}
	n := d.note(nil, "kind", kind+" "+fieldText(yamlnode.Child(root, "metadata"), "name"), message)
	n.Line = yamlnode.Line(root, "kind")
	d.result.Lost = append(d.result.Lost, n)
}

// kctfRest lists the fields of a spec that a Challenge does not have.
func (d *draft) kctfRest(s *service, spec *yamlv3.Node) {
	known := slices.Clone(kctfFields)
	for _, key := range slices.Sorted(maps.Keys(kctfReasons)) {
		if node := yamlnode.Child(spec, key); node != nil {
			d.lost(s, key, sourceText(node), kctfReasons[key])
			known = append(known, key)
		}
	}
	d.otherFields(s, spec, known)
}

// kctfPod imports a pod template: what it sets for the container of the challenge, and further containers.
func (d *draft) kctfPod(pod corev1.PodSpec, node *yamlv3.Node) {
	s := d.services[0]
	d.otherFields(&service{name: s.name, node: node}, node, podFields)
	for i, c := range pod.Containers {
		each := yamlnode.Item(yamlnode.Child(node, "containers"), i)
		into := s
		switch c.Name {
		case kctfMain:
		case "healthcheck":
			d.lost(&service{name: c.Name, node: each}, "name", c.Name, "write a ChallengeCheck with a solver in its place (docs/berg/challengecheck.md)")
			continue
		default:
			into = &service{name: c.Name, node: each, named: c.Image}
			d.lost(into, "name", c.Name, "containers of a pod shared localhost: this one has a hostname of its own")
			for _, p := range c.Ports {
				into.exposed = append(into.exposed, port{number: p.ContainerPort, udp: p.Protocol == corev1.ProtocolUDP})
			}
			d.services = append(d.services, into)
		}
		into.container = d.podContainer(into, c, each)
	}
	for _, s := range d.services {
		s.container.RuntimeClassName = ptr.Deref(pod.RuntimeClassName, "")
	}
}
