package manifests

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// everyForm has a container for each form of flag, also late ones.
func everyForm() Snapshot {
	file := func(path string) *bergv1.FlagFile { return &bergv1.FlagFile{Path: path} }
	var all []bergv1.Container
	for name, flag := range map[string]*bergv1.DynamicFlag{
		"none": nil, "variable": {Env: &bergv1.FlagEnv{Name: "FLAG"}}, "content": {Content: file("/flag-{entropy}.txt")}, "program": {Executable: file("/get_flag")},
		"late-content": {Content: file("/run/flag/flag.txt"), Late: bergv1.LateFile}, "late-program": {Executable: file("/run/flag/get"), Late: bergv1.LateFile},
	} {
		all = append(all, bergv1.Container{
			Hostname: name, Image: "example.com/" + name, DynamicFlag: flag,
			Ports: []bergv1.Port{{Name: name, Port: 80, Type: bergv1.PublicHTTPRoute}, {Port: 1337, Type: bergv1.PublicPort}},
		})
	}
	return Snapshot{Containers: all}
}

type planned struct {
	Foundation Foundation
	Workloads  any
}

func plan(t *testing.T, in Inputs) planned {
	t.Helper()
	f, err := PlanFoundation(in)
	if err != nil {
		t.Fatal(err)
	}
	reached, err := PortEndpoints(in, allotNodePorts(f.Services))
	if err != nil {
		t.Fatal(err)
	}
	return planned{f, PlanWorkloads(in, reached)}
}

func asText(t *testing.T, p planned) string {
	t.Helper()
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The API server refuses another selector, and another template would restart the pods.
func TestAPreparedInstanceKeepsItsObjectsWhenItIsTakenOver(t *testing.T) {
	waiting := testInputs(testConfig(t, nil), everyForm())
	waiting.Prepared, waiting.Unclaimed, waiting.Flag = true, true, ""
	taken := waiting
	taken.Unclaimed, taken.Existing = false, waiting.Namespace()
	taken.Flag, taken.OwnerID, taken.Source = testFlag, "11111111-2222-4333-8444-555555555555", "team-7"
	taken.Name.Name = "player"
	before, after := plan(t, waiting), plan(t, taken)

	text := asText(t, before)
	for _, unknown := range []string{"golden}", bergv1.LabelOwnerID, bergv1.LabelSource} {
		if strings.Contains(text, unknown) {
			t.Errorf("a prepared instance has %s", unknown)
		}
	}
	for _, m := range before.Foundation.ConfigMaps {
		if len(m.Data) > 0 || len(m.BinaryData) != 1 || m.BinaryData[keyPrepared] == nil {
			t.Errorf("%s has %v and %v", m.Name, m.Data, m.BinaryData)
		}
	}
	for _, m := range after.Foundation.ConfigMaps {
		if m.BinaryData[keyPrepared] != nil {
			t.Errorf("%s still keeps its containers waiting", m.Name)
		}
	}
	if labels := after.Foundation.Namespace.Labels; labels[bergv1.LabelOwnerID] != taken.OwnerID || labels[bergv1.LabelSource] != "team-7" {
		t.Errorf("the namespace has the labels %v", labels)
	}
	for _, p := range []*planned{&before, &after} {
		p.Foundation.Namespace, p.Foundation.ConfigMaps = nil, nil
	}
	if diff := cmp.Diff(asText(t, before), asText(t, after)); diff != "" {
		t.Errorf("other objects change:\n%s", diff)
	}
}

func TestAContainerWaitsForItsFlag(t *testing.T) {
	in := testInputs(testConfig(t, nil), everyForm())
	in.Prepared, in.Unclaimed = true, true
	for _, c := range in.Challenge.Containers {
		spec := podSpec(in, c, nil)
		env := spec.Containers[0].Env
		reference := env[len(env)-1].ValueFrom
		var file, gate string
		var whole bool
		for _, v := range spec.Volumes {
			if v.ConfigMap == nil {
				continue
			}
			for _, item := range v.ConfigMap.Items {
				if item.Key == keyPrepared {
					gate = item.Path
				} else {
					file = item.Path
				}
			}
			whole = spec.Containers[0].VolumeMounts[0].SubPath == ""
		}
		waits := reference != nil || gate != "" && strings.HasPrefix(file, gate+"/") && spec.Containers[0].VolumeMounts[0].SubPath == file
		if waits != WaitsForFlag(c) {
			t.Errorf("%s waits: %v", c.Hostname, waits)
		}
		if late := strings.HasPrefix(c.Hostname, "late"); whole != late || late && spec.Containers[0].VolumeMounts[0].MountPath != "/run/flag" {
			t.Errorf("%s mounts %v", c.Hostname, spec.Containers[0].VolumeMounts)
		}
	}
}
