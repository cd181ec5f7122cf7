package importer

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
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
	} `json:"spec"`
}

// kctfFields are the fields of a spec that are carried over or irrelevant.
var kctfFields = []string{"deployed", "image", "network", "powDifficultySeconds", "healthcheck"}

// kctf imports a challenge of kCTF, whose image is built in the folder challenge.
func (out *Result) kctf(file string, content []byte, o Options) error {
	var k kctfChallenge
	root, err := parseYAML(content)
	if err == nil {
		err = yaml.Unmarshal(content, &k)
	}
	if err != nil {
		return fmt.Errorf("%s: must be a challenge of kCTF in YAML: %w", file, err)
	}
	d := out.draft(file, k.Metadata.Name, o)
	spec := yamlnode.Child(root, "spec")
	s := &service{name: d.challenge.Name, node: spec}
	for _, name := range []string{"challenge/Dockerfile", "Dockerfile"} {
		file := filepath.Join(filepath.Dir(file), filepath.FromSlash(name))
		if _, err := os.Stat(file); err == nil && s.build == nil {
			s.build = &Build{Context: filepath.Dir(file)}
			s.image = readDockerfile(file, filepath.Dir(file), "", nil)
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
	if k.Spec.PowDifficultySeconds > 0 {
		d.lost(s, "powDifficultySeconds", fmt.Sprint(k.Spec.PowDifficultySeconds), "no proof of work is asked: each player has an instance of their own")
	}
	if k.Spec.Healthcheck.Enabled {
		d.lost(s, "healthcheck", "", "write a ChallengeCheck with a solver in its place (docs/berg/challengecheck.md)")
	}
	d.otherFields(s, spec, kctfFields)
	d.services = append(d.services, s)
	return d.finish()
}

// otherFields lists the fields of an object that a Challenge does not have.
func (d *draft) otherFields(s *service, node *yamlv3.Node, known []string) {
	if node == nil || node.Kind != yamlv3.MappingNode {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if key := node.Content[i].Value; !slices.Contains(known, key) {
			n := d.note(s, key, sourceText(node.Content[i+1]), "a Challenge has no such field")
			n.Line = node.Content[i].Line
			d.result.Lost = append(d.result.Lost, n)
		}
	}
}
