package main

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// What Krew's index asks of a manifest: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
func TestTheManifestIsOneForKrew(t *testing.T) {
	text, err := manifestOf("v1.2.3", "https://example.com/v1.2.3/", []archive{
		{"linux", "amd64", "kubectl-berg_v1.2.3_linux_amd64.tar.gz", strings.Repeat("0a", 32), "kubectl-berg"},
		{"windows", "arm64", "kubectl-berg_v1.2.3_windows_arm64.tar.gz", strings.Repeat("0b", 32), "kubectl-berg.exe"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription string
			Platforms                           []struct {
				URI, SHA256, Bin string
				Selector         struct{ MatchLabels map[string]string }
				Files            []struct{ From, To string }
			}
		}
	}
	if err := yaml.UnmarshalStrict(text, &m, yaml.DisallowUnknownFields); err == nil {
		t.Error("the description is missing")
	}
	if err := yaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" || m.Metadata.Name != "berg" || m.Spec.Version != "v1.2.3" {
		t.Errorf("%+v", m)
	}
	if len(m.Spec.ShortDescription) > 60 || strings.HasSuffix(m.Spec.ShortDescription, ".") {
		t.Errorf("short description %q", m.Spec.ShortDescription)
	}
	for _, p := range m.Spec.Platforms {
		if !regexp.MustCompile(`^https://example.com/v1.2.3/kubectl-berg_v1.2.3_[a-z0-9_]+\.tar\.gz$`).MatchString(p.URI) ||
			len(p.SHA256) != 64 || len(p.Selector.MatchLabels) != 2 || p.Files[0].From != p.Bin {
			t.Errorf("%+v", p)
		}
	}
}
