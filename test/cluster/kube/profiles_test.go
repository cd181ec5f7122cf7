package kube

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

func TestProfilesAreWhole(t *testing.T) {
	for _, p := range profiles() {
		t.Run(p.name, func(t *testing.T) {
			if p.up == nil || len(p.parts) == 0 || len(p.components) == 0 {
				t.Error("it does not say what it is made of")
			}
			if (len(p.checks) > 0) != (p.ready != "") || (len(p.checks) > 0) != (p.suspect != "") {
				t.Error("checks want to be named, and a component whose log may tell why they fail")
			}
			for _, part := range p.images {
				if !slices.Contains(p.parts, part) {
					t.Errorf("the images of %s are not built", part.Name)
				}
			}
			c := &Cluster{Name: "berg", Profile: p.name, dir: t.TempDir()}
			if p.suspect != "" && !slices.Contains(c.components(), p.suspect) {
				t.Errorf("%s does not run", p.suspect)
			}
			names := map[string]bool{}
			for _, id := range c.identities() {
				if names[id.Name] {
					t.Errorf("two certificates are called %s", id.Name)
				}
				names[id.Name] = true
			}
			for _, user := range c.kubeconfigUsers() {
				if !names[user] {
					t.Errorf("%s has a kubeconfig and no certificate", user)
				}
			}
		})
	}
}

// The order of the parts is that of the builds, and the names of a cluster's programs.
func TestPartsOfProfiles(t *testing.T) {
	for profile, want := range map[string]string{
		ProfileSimulated: "control-plane kwok crds",
		ProfileNode:      "control-plane node containerd runc image coredns images crds",
		ProfileOLM:       "control-plane node containerd runc image coredns images olm olm-images crds",
		ProfileNetwork:   "control-plane node containerd runc image coredns images outside cilium traefik crds",
		ProfileTekton:    "control-plane node containerd runc image coredns images tekton tekton-images kaniko build-images gitserver crds",
		"":               "control-plane kwok crds node containerd runc image coredns images olm olm-images outside cilium traefik tekton tekton-images kaniko build-images gitserver",
		"no-such":        "",
	} {
		if got := listed(PartsOf(profile)); got != want {
			t.Errorf("%q: got %s, want %s", profile, got, want)
		}
	}
}

func listed(parts []*build.Part) string {
	var all []string
	for _, part := range parts {
		all = append(all, part.Name)
	}
	return strings.Join(all, " ")
}

func TestComponentsOfANodeAndWhatExtendsIt(t *testing.T) {
	node, network := &Cluster{Profile: ProfileNode}, &Cluster{Profile: ProfileNetwork}
	if got := network.components(); !slices.Equal(got[:len(node.components())], node.components()) || !slices.Contains(got, outsideName) {
		t.Errorf("got %v", got)
	}
	if got := (&Cluster{Profile: ProfileOLM}).components(); !slices.Equal(got, node.components()) {
		t.Errorf("got %v", got)
	}
}

func TestUpOfAnUnknownProfile(t *testing.T) {
	places := disk.Places{Clusters: t.TempDir(), Binaries: t.TempDir()}
	err := Up(context.Background(), places, Options{Name: "berg", Profile: "no-such"}, progress.New(io.Discard))
	if err == nil || !strings.Contains(err.Error(), "no-such") {
		t.Errorf("got %v", err)
	}
}

func TestReenterLeavesOtherCommandsAlone(t *testing.T) {
	if ours, err := Reenter("up", nil); ours || err != nil {
		t.Errorf("got %v, %v", ours, err)
	}
	if ours, err := Reenter(commandInside, nil); !ours || err == nil {
		t.Errorf("%s without arguments: got %v, %v", commandInside, ours, err)
	}
}
