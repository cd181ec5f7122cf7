package chart

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	folder    = "../../../deploy/helm/berg-operator"
	namespace = "berg-operator-system"
	keep      = "helm.sh/resource-policy"
)

// render returns the objects of the chart without those of its test, by kind, namespace and name, and what Helm says after
// an installation.
func render(values, into string, served ...string) (objects map[string]map[string]any, notes string, err error) {
	objects, notes, err = renderAll(values, into, served...)
	maps.DeleteFunc(objects, func(_ string, object map[string]any) bool { return isHook(object) })
	return objects, notes, err
}

func isHook(object map[string]any) bool {
	return field(object, "metadata", "annotations", "helm.sh/hook") != nil
}

// renderAll fails where a template reads a value that does not exist, other than Helm.
func renderAll(values, into string, served ...string) (objects map[string]map[string]any, notes string, err error) {
	return renderWith(engine.Engine{Strict: true}, values, into, served...)
}

func renderWith(templates engine.Engine, values, into string, served ...string) (objects map[string]map[string]any, notes string, err error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, "", err
	}
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return nil, "", err
	}
	release := common.ReleaseOptions{Name: "some-name", Namespace: into, Revision: 1, IsInstall: true}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), served...)
	all, err := util.ToRenderValues(chart, given, release, capabilities)
	if err != nil {
		return nil, "", err
	}
	files, err := templates.RenderWithContext(context.Background(), chart, all)
	if err != nil {
		return nil, "", err
	}
	objects = map[string]map[string]any{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(path, "NOTES.txt") {
			notes = files[path]
			continue
		}
		if err := parse([]byte(files[path]), objects); err != nil {
			return nil, "", fmt.Errorf("%s: %w\n%s", path, err, files[path])
		}
	}
	return objects, notes, takeLabels(objects)
}

// takeLabels takes the labels off all objects that Helm's users know, and that a file without Helm has not. The error says which
// object lacks one.
func takeLabels(objects map[string]map[string]any) error {
	for id, object := range objects {
		metadata, _ := object["metadata"].(map[string]any)
		labels, _ := metadata["labels"].(map[string]any)
		if labels["extra"] != nil {
			continue // an object of extraObjects
		}
		for _, name := range []string{"helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"} {
			if labels[name] == nil {
				return fmt.Errorf("%s has no label %s", id, name)
			}
			delete(labels, name)
		}
		if len(labels) == 0 {
			delete(metadata, "labels")
		}
	}
	return nil
}

func parse(text []byte, into map[string]map[string]any) error {
	for document := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---\n")) {
		var object map[string]any
		if err := yaml.UnmarshalStrict(document, &object); err != nil {
			return err
		}
		if len(object) == 0 {
			continue
		}
		metadata, _ := object["metadata"].(map[string]any)
		id := fmt.Sprintf("%v/%v/%v", object["kind"], metadata["namespace"], metadata["name"])
		if _, twice := into[id]; twice {
			return fmt.Errorf("%s is there twice", id)
		}
		into[id] = bare(object).(map[string]any)
	}
	return nil
}

// bare returns a value without what an API server drops: fields without a value, and lists without
// an item. The order of variables means nothing here, where none refers to another.
func bare(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, part := range value {
			part = bare(part)
			if list, ok := part.([]any); part == nil || ok && len(list) == 0 && (key == "volumes" || key == "volumeMounts") {
				delete(value, key)
				continue
			}
			if list, ok := part.([]any); ok && key == "env" {
				slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
			value[key] = part
		}
	case []any:
		for i := range value {
			value[i] = bare(value[i])
		}
	}
	return value
}

// must renders values that are right.
func must(t *testing.T, values string) map[string]map[string]any {
	t.Helper()
	objects, _, err := render(values, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// asHelm renders values of which some are null, which removes them.
func asHelm(t *testing.T, values string) (objects map[string]map[string]any, notes string) {
	t.Helper()
	objects, notes, err := renderWith(engine.Engine{}, values, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return objects, notes
}

func field(object any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			fields, _ := object.(map[string]any)
			object = fields[step]
		case int:
			list, _ := object.([]any)
			if step >= len(list) {
				return nil
			}
			object = list[step]
		}
	}
	return object
}

// kept takes Helm's mark off the definitions, and returns on how many it was.
func kept(objects map[string]map[string]any) (marked int) {
	for _, object := range objects {
		annotations, _ := field(object, "metadata", "annotations").(map[string]any)
		if annotations[keep] == "keep" {
			delete(annotations, keep)
			marked++
		}
	}
	return marked
}

func definitions(objects map[string]map[string]any) (names []string) {
	for id := range objects {
		if strings.HasPrefix(id, "CustomResourceDefinition/") {
			names = append(names, id)
		}
	}
	return names
}

func compare(t *testing.T, got, want map[string]map[string]any) {
	t.Helper()
	for id := range want {
		if got[id] == nil {
			t.Errorf("the chart lacks %s", id)
		} else if !reflect.DeepEqual(got[id], want[id]) {
			a, _ := yaml.Marshal(got[id])
			b, _ := yaml.Marshal(want[id])
			t.Errorf("%s differs from the file: %s", id, firstDifference(string(a), string(b)))
		}
	}
	for id := range got {
		if want[id] == nil {
			t.Errorf("the chart has %s, and the file has not", id)
		}
	}
}

func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d is %q instead of %q", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(a), len(b))
}

// file returns the objects of a file in deploy/.
func file(t *testing.T, name string) map[string]map[string]any {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/" + name)
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]map[string]any{}
	if err := parse(text, objects); err != nil {
		t.Fatal(err)
	}
	if len(objects) < 5 {
		t.Fatalf("%s has %d objects", name, len(objects))
	}
	return objects
}

// named takes the API groups out of the Deployment: the chart names them, and in the files the operator finds out.
func named(t *testing.T, objects map[string]map[string]any) (groups string) {
	t.Helper()
	env, _ := field(container(objects), "env").([]any)
	for _, v := range env {
		if field(v, "name") == "ENABLED_APIS" {
			groups, _ = field(v, "value").(string)
			v.(map[string]any)["value"] = ""
		}
	}
	return groups
}

// By default nothing differs but that definitions are kept, that Helm makes the namespace, and that the chart names the API
// group.
func TestDefaultsInstallWhatTheFileInstalls(t *testing.T) {
	want := file(t, "install.yaml")
	whole := must(t, "createNamespace: true")
	if marked := kept(whole); marked != len(definitions(want)) {
		t.Errorf("%d objects are kept when the release is removed, and there are %d definitions", marked, len(definitions(want)))
	}
	if groups := named(t, whole); groups != "berg.norelect.ch" {
		t.Errorf("by default the chart enables %q", groups)
	}
	compare(t, bared(whole), bared(want))

	got := must(t, "")
	kept(got)
	named(t, got)
	delete(want, "Namespace/<nil>/"+namespace)
	compare(t, bared(got), bared(want))
}

// Each other family is one file, which adds what its value adds. No object is in two files.
func TestAFileAddsWhatAValueAdds(t *testing.T) {
	usual := must(t, "")
	for _, name := range families(t) {
		if name == "berg" {
			continue
		}
		got := must(t, "families: {"+name+": true}")
		kept(got)
		delete(got, "Deployment/"+namespace+"/berg-operator-controller-manager") // its settings
		for id := range usual {
			delete(got, id)
		}
		compare(t, bared(got), bared(file(t, name+".yaml")))
	}
}

// The file of the gate is config/gate.
func TestTheFileOfTheGateIsThatOfConfig(t *testing.T) {
	compare(t, bared(file(t, "gate.yaml")), bared(built(t, "../../../config/gate")))
}

// families lists those of the chart.
func families(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct{ Families map[string]bool }
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(values.Families))
}

// everything are the values that want every family.
func everything(t *testing.T) string {
	return "families: {" + strings.Join(families(t), ": true, ") + ": true}\n"
}

// only are the values that want one family.
func only(t *testing.T, name string) string {
	var b strings.Builder
	b.WriteString("families:\n")
	for _, family := range families(t) {
		fmt.Fprintf(&b, "  %s: %t\n", family, family == name)
	}
	return b.String()
}

func container(objects map[string]map[string]any) any {
	return field(objects["Deployment/"+namespace+"/berg-operator-controller-manager"], "spec", "template", "spec", "containers", 0)
}

func variable(objects map[string]map[string]any, name string) (value any, there bool) {
	env, _ := field(container(objects), "env").([]any)
	for _, v := range env {
		if field(v, "name") == name {
			return field(v, "value"), true
		}
	}
	return nil, false
}

// What no family alone brings is of all; together they are everything.
func TestFamiliesCanBeChosen(t *testing.T) {
	whole, together := must(t, everything(t)), map[string]bool{}
	for _, name := range families(t) {
		alone := must(t, only(t, name))
		groups := map[string]bool{}
		for id, object := range alone {
			together[id] = true
			if whole[id] == nil {
				t.Errorf("%s alone has %s, which is not there with all", name, id)
			}
			if strings.HasPrefix(id, "CustomResourceDefinition/") {
				groups[fmt.Sprint(field(object, "spec", "group"))] = true
			}
		}
		if len(alone) >= len(whole) {
			t.Errorf("%s alone is as much as all", name)
		}
		enabled, _ := variable(alone, "ENABLED_APIS")
		if want := strings.Join(slices.Sorted(maps.Keys(groups)), ","); enabled != want || want == "" {
			t.Errorf("%s alone: ENABLED_APIS is %q, and the definitions are of %q", name, enabled, want)
		}
	}
	for id := range whole {
		if !together[id] {
			t.Errorf("%s comes with no family alone", id)
		}
	}
	if _, there := variable(must(t, only(t, "quix")), "CHALLENGE_DOMAIN"); there {
		t.Error("quix alone has a setting of berg")
	}
	if _, _, err := render(only(t, "none"), namespace); err == nil || !strings.Contains(err.Error(), "at least one must be true") {
		t.Errorf("no family at all: error %v", err)
	}
}

// A family alone is what kustomize makes of its component alone, as docs/operations.md shows it.
func TestAFamilyAloneIsItsComponent(t *testing.T) {
	config, err := filepath.Abs("../../../config")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range families(t) {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			operator, err := filepath.Rel(folder, filepath.Join(config, "operator"))
			if err != nil {
				t.Fatal(err)
			}
			component, err := filepath.Rel(folder, filepath.Join(config, name))
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n", operator, component)
			if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			want := built(t, folder)
			got := must(t, "createNamespace: true\n"+only(t, name))
			kept(got)
			named(t, got)
			compare(t, bared(got), bared(want))
		})
	}
}

// built are the objects of a kustomization.
func built(t *testing.T, folder string) map[string]map[string]any {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]map[string]any{}
	if err := parse(manifests, objects); err != nil {
		t.Fatal(err)
	}
	return objects
}

// With every family the chart is config/default, and its monitoring is config/prometheus.
func TestEverythingIsThatOfConfig(t *testing.T) {
	whole := must(t, "createNamespace: true\n"+everything(t))
	kept(whole)
	want := built(t, "../../../config/default")
	compare(t, bared(whole), bared(want))

	monitored := must(t, "prometheus: {enabled: true}\n"+everything(t))
	for id := range want {
		delete(monitored, id)
	}
	compare(t, bared(monitored), bared(built(t, "../../../config/prometheus")))
}

// A name that looks like a number stays a text.
func TestNamesThatLookLikeNumbers(t *testing.T) {
	objects, _, err := render(everything(t)+withAll+"serviceAccount: {create: false, name: \"2026\"}\nsettings: {RECORD_NAMESPACE: \"7\"}\n", "123")
	if err != nil {
		t.Fatal(err)
	}
	for id, object := range objects {
		for _, path := range [][]any{{"metadata", "name"}, {"metadata", "namespace"}, {"subjects", 0, "name"}, {"subjects", 0, "namespace"}} {
			if name := field(object, path...); name != nil {
				if _, isText := name.(string); !isText {
					t.Errorf("%s has the name %v in %v, which is no text", id, name, path)
				}
			}
		}
	}
}

// bared brings all lists into their order again.
func bared(objects map[string]map[string]any) map[string]map[string]any {
	for _, object := range objects {
		bare(object)
	}
	return objects
}

func TestSettingsReachTheOperator(t *testing.T) {
	objects := must(t, everything(t)+`
settings:
  CHALLENGE_DOMAIN: ctf.example.org
  CHALLENGE_HTTP_PORT: 443
  CHALLENGE_HTTP_TLS: false
  CHALLENGE_CPU_LIMIT: 0.5
  CHALLENGE_EPHEMERAL_STORAGE_LIMIT: 5000000000
  MAX_CONCURRENT_RECONCILES: 64
  CLUSTER_POD_CIDRS: [10.0.0.0/8, "fd00::/8"]
  ENVIRONMENT_REGEX: '^{{ "x" }}$'
`)
	for name, want := range map[string]string{
		"CHALLENGE_DOMAIN": "ctf.example.org", "CHALLENGE_HTTP_PORT": "443", "CHALLENGE_HTTP_TLS": "false", "CHALLENGE_CPU_LIMIT": "0.5",
		"CHALLENGE_EPHEMERAL_STORAGE_LIMIT": "5000000000", "MAX_CONCURRENT_RECONCILES": "64",
		"CLUSTER_POD_CIDRS": "10.0.0.0/8,fd00::/8", "ENVIRONMENT_REGEX": `^{{ "x" }}$`, "GATEWAY_NAME": "berg-gateway",
	} {
		if got, _ := variable(objects, name); got != want {
			t.Errorf("%s is %v instead of %q", name, got, want)
		}
	}
}

func TestValuesReachTheObjects(t *testing.T) {
	objects := must(t, `
image: {repository: registry.example.com/op, tag: "9"}
imagePullSecrets: [{name: registry}]
replicas: 1
nodeSelector: {role: infra}
tolerations: []
podLabels: {team: blue}
podAnnotations: {note: "yes"}
extraEnv: [{name: GOMEMLIMIT, value: 900MiB}]
extraVolumes: [{name: kafka, secret: {secretName: kafka}}]
extraVolumeMounts: [{name: kafka, mountPath: /kafka, readOnly: true}]
networkPolicy: {enabled: false}
crds: {keep: false}
prometheus: {enabled: true, labels: {release: main}}
`)
	deployment := field(objects["Deployment/"+namespace+"/berg-operator-controller-manager"], "spec")
	pod := field(deployment, "template", "spec")
	for what, pair := range map[string][2]any{
		"image":       {field(container(objects), "image"), "registry.example.com/op:9"},
		"pull secret": {field(pod, "imagePullSecrets", 0, "name"), "registry"},
		"replicas":    {field(deployment, "replicas"), 1.0},
		"node":        {field(pod, "nodeSelector", "role"), "infra"},
		"tolerations": {field(pod, "tolerations"), nil},
		"label":       {field(deployment, "template", "metadata", "labels", "team"), "blue"},
		"own label":   {field(deployment, "template", "metadata", "labels", "control-plane"), "controller-manager"},
		"annotation":  {field(deployment, "template", "metadata", "annotations", "note"), "yes"},
		"volume":      {field(pod, "volumes", 0, "name"), "kafka"},
		"mount":       {field(container(objects), "volumeMounts", 0, "mountPath"), "/kafka"},
		"monitor":     {field(objects["ServiceMonitor/"+namespace+"/berg-operator-controller-manager-metrics"], "metadata", "labels", "release"), "main"},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s is %v instead of %v", what, pair[0], pair[1])
		}
	}
	if value, _ := variable(objects, "GOMEMLIMIT"); value != "900MiB" {
		t.Errorf("the further variable is %v", value)
	}
	if marked := kept(objects); marked > 0 || len(definitions(objects)) == 0 {
		t.Errorf("%d of %d definitions are kept", marked, len(definitions(objects)))
	}
	for id := range objects {
		if strings.HasPrefix(id, "NetworkPolicy/") {
			t.Errorf("%s is there without networkPolicy.enabled", id)
		}
	}
	digest := "sha256:" + strings.Repeat("0", 64)
	if got := field(container(must(t, "image: {digest: "+digest+"}")), "image"); !strings.HasSuffix(fmt.Sprint(got), "@"+digest) {
		t.Errorf("with a digest the image is %v", got)
	}
	if left := definitions(must(t, "crds: {enabled: false}")); len(left) > 0 {
		t.Errorf("without crds.enabled there are %v", left)
	}
}

// What administrators of other charts look for.
func TestUsualValuesReachTheObjects(t *testing.T) {
	objects := must(t, `
commonLabels: {team: blue}
serviceAccount: {annotations: {role: ctf}}
priorityClassName: high
podDisruptionBudget: {enabled: false}
podSecurityContext: {runAsNonRoot: true, runAsUser: null}
securityContext: {readOnlyRootFilesystem: false}
updateStrategy: {type: Recreate, rollingUpdate: null}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
aggregateRoles: true
extraObjects:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: one, labels: {extra: "1"}}}
- "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}, labels: {extra: '1'}}"
prometheus:
  enabled: true
  interval: 10s
  scrapeTimeout: 5s
  relabelings: [{targetLabel: cluster, replacement: main}]
  metricRelabelings: [{action: labeldrop, regex: pod}]
dashboard: {enabled: true, labels: {release: main}, annotations: {grafana_folder: CTF}}
settings: {CHALLENGE_HTTP_PORT: "443", CHALLENGE_HTTP_TLS: "false"}
`)
	for id, object := range objects {
		if !strings.HasPrefix(id, "ConfigMap/<nil>/") && field(object, "metadata", "labels", "team") != "blue" {
			t.Errorf("%s has no common label", id)
		}
		if strings.HasPrefix(id, "ClusterRole/") && (strings.HasSuffix(id, "-editor") || strings.HasSuffix(id, "-viewer")) {
			labels := fmt.Sprint(field(object, "metadata", "labels"))
			if !strings.Contains(labels, "aggregate-to-admin:true") || !strings.Contains(labels, "aggregate-to-edit:true") || strings.Contains(labels, "to-view") {
				t.Errorf("%s has the labels %s", id, labels)
			}
		}
		if strings.HasPrefix(id, "PriorityClass/") || strings.HasPrefix(id, "PodDisruptionBudget/") {
			t.Errorf("%s is there", id)
		}
	}
	deployment := field(objects["Deployment/"+namespace+"/berg-operator-controller-manager"], "spec")
	pod := field(deployment, "template", "spec")
	endpoint := field(objects["ServiceMonitor/"+namespace+"/berg-operator-controller-manager-metrics"], "spec", "endpoints", 0)
	port, _ := variable(objects, "CHALLENGE_HTTP_PORT")
	encrypted, _ := variable(objects, "CHALLENGE_HTTP_TLS")
	for what, pair := range map[string][2]any{
		"annotation of the account": {field(objects["ServiceAccount/"+namespace+"/berg-operator-controller-manager"], "metadata", "annotations", "role"), "ctf"},
		"priority":                  {field(pod, "priorityClassName"), "high"},
		"user":                      {field(pod, "securityContext", "runAsUser"), nil},
		"not root":                  {field(pod, "securityContext", "runAsNonRoot"), true},
		"root file system":          {field(container(objects), "securityContext", "readOnlyRootFilesystem"), false},
		"capabilities":              {field(container(objects), "securityContext", "capabilities", "drop", 0), "ALL"},
		"strategy":                  {field(deployment, "strategy"), map[string]any{"type": "Recreate"}},
		"network of the node":       {field(pod, "hostNetwork"), true},
		"DNS":                       {field(pod, "dnsPolicy"), "ClusterFirstWithHostNet"},
		"further object":            {field(objects["ConfigMap/<nil>/one"], "kind"), "ConfigMap"},
		"further template":          {field(objects["ConfigMap/<nil>/some-name"], "kind"), "ConfigMap"},
		"interval":                  {field(endpoint, "interval"), "10s"},
		"timeout":                   {field(endpoint, "scrapeTimeout"), "5s"},
		"relabelings":               {field(endpoint, "relabelings", 0, "replacement"), "main"},
		"relabelings of metrics":    {field(endpoint, "metricRelabelings", 0, "action"), "labeldrop"},
		"dashboard":                 {field(objects["ConfigMap/"+namespace+"/berg-operator-dashboard"], "metadata", "labels", "grafana_dashboard"), "1"},
		"label of the dashboard":    {field(objects["ConfigMap/"+namespace+"/berg-operator-dashboard"], "metadata", "labels", "release"), "main"},
		"folder of the dashboard":   {field(objects["ConfigMap/"+namespace+"/berg-operator-dashboard"], "metadata", "annotations", "grafana_folder"), "CTF"},
		"quoted number":             {port, "443"},
		"quoted boolean":            {encrypted, "false"},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s is %v instead of %v", what, pair[0], pair[1])
		}
	}
	if labels := fmt.Sprint(field(must(t, "")["ClusterRole/<nil>/berg-operator-challenge-viewer"], "metadata", "labels")); strings.Contains(labels, "aggregate") {
		t.Errorf("by default a role is added to others: %s", labels)
	}
}

// A setting without a value, as of --set NAME=null, has its default, which an empty variable means.
func TestASettingWithoutAValueHasItsDefault(t *testing.T) {
	objects, notes := asHelm(t, "settings: {CHALLENGE_DOMAIN: null, CHALLENGE_HTTP_PORT: null, CLUSTER_NODE_CIDRS: null}\napi: {enabled: true, settings: {RATE: null}}")
	for _, name := range []string{"CHALLENGE_DOMAIN", "CHALLENGE_HTTP_PORT", "CLUSTER_NODE_CIDRS"} {
		if value, there := variable(objects, name); !there || value != "" {
			t.Errorf("%s is %v", name, value)
		}
	}
	if text, _ := yaml.Marshal(objects["Deployment/"+namespace+"/berg-api"]); !bytes.Contains(text, []byte("name: RATE\n          value: \"\"")) {
		t.Errorf("RATE has a value:\n%s", text)
	}
	if !strings.Contains(notes, "only an example") {
		t.Errorf("the notes do not say that the default domain is an example:\n%s", notes)
	}
}

// Fields without a value are those of Kubernetes, and quoted numbers are numbers.
func TestValuesMayBeMissingOrQuoted(t *testing.T) {
	objects, _ := asHelm(t, everything(t)+withAll+`
replicas: "3"
resources: null
affinity: null
nodeSelector: null
tolerations: null
topologySpreadConstraints: null
podSecurityContext: null
securityContext: null
updateStrategy: null
podLabels: null
podAnnotations: null
commonLabels: null
imagePullSecrets: null
extraEnv: null
extraVolumes: null
extraVolumeMounts: null
extraObjects: null
priorityClassName: null
fullnameOverride: null
hostNetwork: null
dnsPolicy: null
serviceAccount: {annotations: null}
dashboard: {enabled: true, labels: null, annotations: null}
podDisruptionBudget: {maxUnavailable: "2"}
`)
	deployment := field(objects["Deployment/"+namespace+"/berg-operator-controller-manager"], "spec")
	for what, pair := range map[string][2]any{
		"replicas":  {field(deployment, "replicas"), float64(3)},
		"resources": {field(container(objects), "resources"), nil},
		"budget":    {field(objects["PodDisruptionBudget/"+namespace+"/berg-operator-controller-manager"], "spec", "maxUnavailable"), float64(2)},
		"dashboard": {field(objects["ConfigMap/"+namespace+"/berg-operator-dashboard"], "metadata", "labels", "grafana_dashboard"), "1"},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s is %v instead of %v", what, pair[0], pair[1])
		}
	}
}

// The templates read values in the sections, so that each must be there.
func TestASectionMustNotBeNull(t *testing.T) {
	for _, section := range []string{
		"families", "settings", "rights", "image", "api", "api.image", "api.settings", "seccompProfiles", "serviceAccount", "podDisruptionBudget",
		"gate", "gate.ports", "gate.service", "gate.gateway", "gate.image", "gate.podDisruptionBudget", "gate.settings", "dashboard", "networkPolicy", "crds", "prometheus", "quix",
	} {
		values, last := section+": null", section
		if outer, inner, nested := strings.Cut(section, "."); nested {
			values, last = outer+": {"+inner+": null}", inner
		}
		_, _, err := render(values, namespace)
		if err == nil || !strings.Contains(err.Error(), "'"+last+"'") || strings.Contains(err.Error(), "nil pointer") {
			t.Errorf("%s: error %v does not name %s", values, err, last)
		}
	}
}

// The labels of a value for some objects go before those of all objects. render refuses a key that is there twice.
func TestNoLabelIsThereTwice(t *testing.T) {
	objects := must(t, everything(t)+withAll+`
commonLabels: {release: all, team: blue}
prometheus: {enabled: true, labels: {release: stack, app.kubernetes.io/instance: mine}}
dashboard: {enabled: true, labels: {release: grafana, helm.sh/chart: mine}}
`)
	found := map[string]int{}
	for id, object := range objects {
		want := "all"
		switch kind, _, _ := strings.Cut(id, "/"); {
		case kind == "ServiceMonitor", kind == "PodMonitor", kind == "PrometheusRule":
			want = "stack"
		case kind == "ConfigMap" && strings.Contains(id, "dashboard"):
			want = "grafana"
		case field(object, "metadata", "labels", "release") == nil:
			continue
		}
		found[want]++
		if got := field(object, "metadata", "labels", "release"); got != want {
			t.Errorf("%s has the label release: %v instead of %s", id, got, want)
		}
		if field(object, "metadata", "labels", "team") != "blue" || field(object, "metadata", "labels", "app.kubernetes.io/instance") == "mine" {
			t.Errorf("%s has the labels %v", id, field(object, "metadata", "labels"))
		}
	}
	if found["all"] == 0 || found["stack"] == 0 || found["grafana"] == 0 {
		t.Errorf("found %v", found)
	}
}

// No label or annotation is there twice: what an object needs stays, and the value by which Grafana selects is the reader's.
func TestLabelsOfObjectsStay(t *testing.T) {
	objects := must(t, everything(t)+withAll+`
createNamespace: true
commonLabels: {app.kubernetes.io/part-of: ctf, app.kubernetes.io/name: mine, app.kubernetes.io/managed-by: me, control-plane: mine, example.com/team: blue, pod-security.kubernetes.io/enforce: privileged}
podLabels: {app.kubernetes.io/name: mine, control-plane: mine, team: blue}
podAnnotations: {kubectl.kubernetes.io/default-container: mine}
dashboard: {enabled: true, labels: {grafana_dashboard: "yes", app.kubernetes.io/name: mine}}
`)
	deployment := objects["Deployment/"+namespace+"/berg-operator-controller-manager"]
	dashboard := objects["ConfigMap/"+namespace+"/berg-operator-dashboard"]
	const name, partOf = "app.kubernetes.io/name", "app.kubernetes.io/part-of"
	for what, pair := range map[string][2]any{
		"name":                {field(deployment, "metadata", "labels", name), "berg-operator"},
		"part":                {field(deployment, "metadata", "labels", partOf), "ctf"},
		"part of the API":     {field(objects["Deployment/"+namespace+"/berg-api"], "metadata", "labels", partOf), "berg-operator"},
		"team of the API":     {field(objects["Deployment/"+namespace+"/berg-api"], "metadata", "labels", "example.com/team"), "blue"},
		"name of pods":        {field(deployment, "spec", "template", "metadata", "labels", name), "berg-operator"},
		"team of pods":        {field(deployment, "spec", "template", "metadata", "labels", "team"), "blue"},
		"container":           {field(deployment, "spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/default-container"), "manager"},
		"level of warnings":   {field(objects["Namespace/<nil>/"+namespace], "metadata", "labels", "pod-security.kubernetes.io/warn"), "restricted"},
		"enforced level":      {field(objects["Namespace/<nil>/"+namespace], "metadata", "labels", "pod-security.kubernetes.io/enforce"), "privileged"},
		"sidecar":             {field(dashboard, "metadata", "labels", "grafana_dashboard"), "yes"},
		"name of a dashboard": {field(dashboard, "metadata", "labels", name), "berg-operator"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v instead of %v", what, pair[0], pair[1])
		}
	}
}

// In the network of a node pods need another policy for names, and a namespace that admits them.
func TestPodsInTheNetworkOfTheirNode(t *testing.T) {
	objects, notes, err := renderAll("{createNamespace: true, hostNetwork: true, api: {enabled: true}, gate: {enabled: true}}", namespace)
	if err != nil {
		t.Fatal(err)
	}
	for id, path := range map[string][]any{
		"Deployment/" + namespace + "/berg-operator-controller-manager": {"spec", "template", "spec", "dnsPolicy"},
		"Pod/" + namespace + "/berg-operator-test":                      {"spec", "dnsPolicy"},
	} {
		if got := field(objects[id], path...); got != "ClusterFirstWithHostNet" {
			t.Errorf("%s resolves names by %v", id, got)
		}
	}
	labels, _ := field(objects["Namespace/<nil>/"+namespace], "metadata", "labels").(map[string]any)
	for label, level := range labels {
		if strings.HasPrefix(label, "pod-security.kubernetes.io/") && level != "privileged" {
			t.Errorf("%s is %v, which refuses the pods", label, level)
		}
	}
	if len(labels) < 4 || strings.Contains(notes, "restricted") {
		t.Errorf("the labels are %v, the notes:\n%s", labels, notes)
	}
	if got := field(must(t, "{hostNetwork: true, dnsPolicy: Default}")["Deployment/"+namespace+"/berg-operator-controller-manager"], "spec", "template", "spec", "dnsPolicy"); got != "Default" {
		t.Errorf("dnsPolicy has no effect: %v", got)
	}
}

// docs/helm.md has a row with every value.
func TestThePageNamesEveryValue(t *testing.T) {
	page, err := os.ReadFile("../../../docs/helm.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	// Settings have a page of their own, and the others are explained as a whole.
	whole := []string{"families", "settings", "image", "resources", "affinity", "podSecurityContext", "securityContext", "updateStrategy"}
	for name, value := range values {
		parts, _ := value.(map[string]any)
		if len(parts) == 0 || slices.Contains(whole, name) {
			if !bytes.Contains(page, []byte("`"+name+"`")) {
				t.Errorf("docs/helm.md does not name %s", name)
			}
			continue
		}
		for part := range parts {
			if !regexp.MustCompile("(?m)^\\| [^|]*`" + name + "\\.[^|]*[.]" + part + "`|`" + name + "\\." + part + "`").Match(page) {
				t.Errorf("docs/helm.md does not name %s.%s", name, part)
			}
		}
	}
}

// Nothing that follows the name of the release is left with the former one, and what the operator knows by name stays.
func TestAnotherNameReachesAllObjects(t *testing.T) {
	values := everything(t) + withAll
	usual := must(t, values)
	objects := must(t, values+"fullnameOverride: arena\n")
	renamed := 0
	for id, object := range usual {
		after := strings.ReplaceAll(id, "berg-operator-controller-manager", "arena-controller-manager")
		if objects[after] == nil {
			t.Errorf("%s is missing", after)
		}
		if after != id {
			renamed++
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		now, err := yaml.Marshal(objects[after])
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(strings.ReplaceAll(string(text), "berg-operator-controller-manager", "arena-controller-manager"), "(berg-operator|", "(arena|")
		if folded(string(now)) != folded(want) {
			t.Errorf("%s:\n%s\nwant\n%s", after, now, want)
		}
	}
	if len(objects) != len(usual) || renamed < 6 {
		t.Errorf("%d objects of %d have another name, want at least 6 of %d", renamed, len(objects), len(usual))
	}
}

// withAll are values with which nothing is left out but what only Cilium has.
const withAll = `
rights: {check: true, nodes: true, prepull: true, record: true}
prometheus: {enabled: true}
api: {enabled: true}
gate: {enabled: true, gateway: {issuerRef: {name: authority}}}
seccompProfiles: {install: true}
`

// An account that exists has the rights of the chart's own, and the policies know it.
func TestAnotherAccountHasTheRights(t *testing.T) {
	const usual, own = "berg-operator-controller-manager", "ctf-2026"
	objects, _, err := renderAll(everything(t)+withAll+"serviceAccount: {create: false, name: "+own+"}\n", namespace)
	if err != nil {
		t.Fatal(err)
	}
	bound, policies := 0, 0
	for id, object := range objects {
		kind, _, _ := strings.Cut(id, "/")
		if kind == "ServiceAccount" && (strings.HasSuffix(id, "/"+usual) || strings.HasSuffix(id, "/"+own)) {
			t.Errorf("%s is there", id)
		}
		subjects, _ := object["subjects"].([]any)
		for _, subject := range subjects {
			switch field(subject, "name") {
			case usual:
				t.Errorf("%s is for the usual account", id)
			case own:
				bound++
			}
		}
		for _, path := range [][]any{{"spec", "serviceAccountName"}, {"spec", "template", "spec", "serviceAccountName"}} {
			if field(object, path...) == usual {
				t.Errorf("%s runs as the usual account", id)
			}
		}
		if kind != "ValidatingAdmissionPolicy" {
			continue
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "s.name == '"+usual+"'") || strings.Count(string(text), "^system:serviceaccount:[^:]+:(") != strings.Count(string(text), "^system:serviceaccount:[^:]+:"+own+"$|") {
			t.Errorf("%s does not know the account:\n%s", id, text)
		}
		policies += strings.Count(string(text), own)
	}
	if bound < 10 || policies < 3 {
		t.Errorf("%d bindings and %d policies are for the account", bound, policies)
	}
}

func TestTheDisruptionBudgetIsAValue(t *testing.T) {
	const id = "PodDisruptionBudget/" + namespace + "/berg-operator-controller-manager"
	for values, want := range map[string]any{"": float64(1), "podDisruptionBudget: {maxUnavailable: 2}": float64(2), "podDisruptionBudget: {maxUnavailable: 50%}": "50%"} {
		if got := field(must(t, values)[id], "spec", "maxUnavailable"); got != want {
			t.Errorf("with %q it is %v", values, got)
		}
	}
}

// Without the chart's PriorityClass no pod may name it.
func TestAnotherPriorityIsThatOfAllPods(t *testing.T) {
	pods := 0
	for id, object := range must(t, everything(t)+withAll+"priorityClassName: high\n") {
		if pod := field(object, "spec", "template", "spec"); pod != nil {
			pods++
			if got := field(pod, "priorityClassName"); got != "high" {
				t.Errorf("%s has the priority %v", id, got)
			}
		}
	}
	if pods != 4 {
		t.Errorf("%d kinds of pods, want operator, API, gate and seccomp profiles", pods)
	}
}

// folded is a text with its words alone: where YAML breaks lines depends on their length.
func folded(text string) string { return strings.Join(strings.Fields(text), " ") }

// helm test runs the operator's own image as the operator's account, and nothing that selects the operator selects it.
func TestTheTestOfTheChart(t *testing.T) {
	hooks := func(values string) (all []map[string]any) {
		objects, _, err := renderAll(values, namespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			if isHook(object) {
				all = append(all, object)
			}
		}
		return all
	}
	values := "image: {tag: v9}\nfullnameOverride: arena\nimagePullSecrets: [{name: registry}]\n"
	all := hooks(values)
	if len(all) != 1 {
		t.Fatalf("the chart has %d hooks, want one", len(all))
	}
	pod := all[0]
	operator := field(must(t, values)["Deployment/"+namespace+"/arena-controller-manager"], "spec", "template", "spec")
	for _, part := range [][]any{
		{"serviceAccountName"},
		{"securityContext"},
		{"affinity"},
		{"tolerations"},
		{"imagePullSecrets"},
		{"containers", 0, "image"},
		{"containers", 0, "imagePullPolicy"},
		{"containers", 0, "securityContext"},
	} {
		if have, want := field(field(pod, "spec"), part...), field(operator, part...); !reflect.DeepEqual(have, want) {
			t.Errorf("%v of the test is %v, that of the operator %v", part, have, want)
		}
	}
	if labels := fmt.Sprint(field(pod, "metadata", "labels")); strings.Contains(labels, "control-plane") {
		t.Errorf("what selects the operator selects the test: %s", labels)
	}
	if left := hooks("settings: {LEADER_ELECT: false}"); len(left) != 0 {
		t.Errorf("without an election there is nothing to ask, but the chart has %v", left)
	}
}

func TestThePlatformOfQuixByValues(t *testing.T) {
	executes := func(objects map[string]map[string]any) bool {
		rules, _ := field(objects["ClusterRole/<nil>/quix-platform-account-role"], "rules").([]any)
		if len(rules) == 0 {
			t.Fatal("the platform has no role")
		}
		return strings.Contains(fmt.Sprint(rules), "pods/exec")
	}
	binding, account := "ClusterRoleBinding/<nil>/quix-platform-account-env", func(namespace, name string) string { return "ServiceAccount/" + namespace + "/" + name }
	usual := must(t, everything(t))
	if !executes(usual) || usual[binding] != nil || usual[account("quix-environment", "quix-platform-account")] != nil {
		t.Error("with the defaults the platform cannot execute, or has an account")
	}
	changed := must(t, everything(t)+`
quix: {allowPodsExec: false, createServiceAccount: true}
settings: {SERVICE_ACCOUNT_NAME: platform, SERVICE_ACCOUNT_NAMESPACE: quix}
`)
	if executes(changed) || changed[account("quix", "platform")] == nil {
		t.Error("the values have no effect")
	}
	if got := field(changed[binding], "subjects", 0); !reflect.DeepEqual(got, map[string]any{"kind": "ServiceAccount", "name": "platform", "namespace": "quix"}) {
		t.Errorf("bound is %v", got)
	}
	if off := must(t, "families: {quix: false}\nquix: {createServiceAccount: true}"); off[binding] != nil {
		t.Error("the platform of a family that is off is bound")
	}
}

// A setting with which pods do more than the policy of the operator's account allows brings its exemption.
func TestExemptionsFollowSettings(t *testing.T) {
	for values, want := range map[string][]any{
		"": nil,
		"settings: {CHALLENGE_ALLOWED_CAPABILITIES: NONE, HEXACTF_TRUSTED_AUTHORS: false}":                       nil,
		"settings: {CHALLENGE_ALLOWED_CAPABILITIES: \"CHOWN, SYS_ADMIN\"}":                                       {"capabilities"},
		"settings: {HEXACTF_ALLOWED_CAPABILITIES: [ALL], CHALLENGE_ALLOWED_CAPABILITIES: ALL}":                   {"capabilities"},
		"settings: {CHALLENGE_SECCOMP_PROFILE: Unconfined, HEXACTF_TRUSTED_AUTHORS: true}":                       {"seccomp-unconfined", "hexactf-trusted-authors"},
		"settings: {CHALLENGE_ALLOWED_CAPABILITIES: \"" + usualCapabilities(t) + "\", HEXACTF_ISOLATION: false}": nil,
	} {
		objects := must(t, everything(t)+values)
		role, binding := objects["ClusterRole/<nil>/berg-operator-exemptions"], objects["ClusterRoleBinding/<nil>/berg-operator-exemptions"]
		if (role != nil) != (want != nil) || (binding != nil) != (want != nil) {
			t.Errorf("%s: %v, %v", values, role, binding)
			continue
		}
		if got := field(role, "rules", 0, "resourceNames"); want != nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", values, got, want)
		}
	}
	if off := must(t, "families: {hexactf: false}\nsettings: {HEXACTF_TRUSTED_AUTHORS: true}"); off["ClusterRole/<nil>/berg-operator-exemptions"] != nil {
		t.Error("an API group that is off has an exemption")
	}
}

// usualCapabilities are those that the policy allows without an exemption: the default of the settings.
func usualCapabilities(t *testing.T) string {
	t.Helper()
	policy, err := os.ReadFile("../../../config/fence/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile("../../../deploy/helm/berg-operator/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`CHALLENGE_ALLOWED_CAPABILITIES: "([A-Z_,]+)"`).FindSubmatch(values)
	if list == nil {
		t.Fatal("the setting has no default")
	}
	for name := range strings.SplitSeq(string(list[1]), ",") {
		if !strings.Contains(string(policy), "'"+name+"'") {
			t.Errorf("the policy does not allow %s, which the setting allows by default", name)
		}
	}
	return string(list[1])
}

// A family that is off brings no alerts either.
func TestAlertsFollowFamilies(t *testing.T) {
	whole := must(t, everything(t)+"prometheus: {enabled: true}")
	for _, name := range families(t) {
		id := "PrometheusRule/" + namespace + "/berg-operator-alerts-" + name
		if whole[id] == nil {
			continue // a family without alerts
		}
		for _, other := range families(t) {
			if alone := must(t, "prometheus: {enabled: true}\n"+only(t, other)); (alone[id] != nil) != (name == other) {
				t.Errorf("%s alone has the alerts of %s: %t", other, name, alone[id] != nil)
			}
		}
	}
	if summary := fmt.Sprint(whole["PrometheusRule/"+namespace+"/berg-operator-alerts"]); !strings.Contains(summary, "{{ $") {
		t.Error("the templates of alerts are gone")
	}
}

// The dashboards are those of config, and each comes with its family.
func TestDashboardsFollowFamilies(t *testing.T) {
	want := built(t, "../../../config/grafana")
	if len(want) != len(families(t))+1 {
		t.Errorf("config/grafana has %d dashboards for %d families", len(want), len(families(t)))
	}
	dashboards := func(values string) map[string]map[string]any {
		objects := must(t, values+"\ndashboard: {enabled: true}")
		maps.DeleteFunc(objects, func(id string, _ map[string]any) bool { return !strings.HasPrefix(id, "ConfigMap/") })
		return objects
	}
	compare(t, bared(dashboards(everything(t))), bared(want))
	for _, name := range families(t) {
		alone := dashboards(only(t, name))
		if len(alone) != 2 || alone["ConfigMap/"+namespace+"/berg-operator-dashboard"] == nil || alone["ConfigMap/"+namespace+"/berg-operator-dashboard-"+name] == nil {
			t.Errorf("%s alone has the dashboards %v", name, slices.Sorted(maps.Keys(alone)))
		}
	}
}

// Rights that only some installations want are those of config/, and come with a value each.
func TestRightsApartAreThoseOfConfig(t *testing.T) {
	whole := must(t, "")
	for _, feature := range []string{"check", "nodes", "prepull", "record"} {
		want := built(t, filepath.Join("../../../config/berg", feature))
		got := must(t, "rights: {"+feature+": true}")
		for id := range whole {
			delete(got, id)
		}
		if len(want) < 2 {
			t.Errorf("config/berg/%s has %d objects", feature, len(want))
		}
		compare(t, bared(got), bared(want))
		role := "ClusterRole/<nil>/berg-operator-berg-" + feature
		if left := must(t, "{families: {berg: false, quix: true}, rights: {"+feature+": true}}"); got[role] == nil || left[role] != nil {
			t.Errorf("rights.%s come without the family", feature)
		}
	}
}

// The platform API is that of config/berg/api, with the settings that the values have as their defaults.
func TestPlatformAPIIsThatOfConfig(t *testing.T) {
	want := built(t, "../../../config/berg/api")
	got := must(t, "api: {enabled: true}")
	for id := range must(t, "") {
		if want[id] != nil {
			t.Errorf("%s is there without api.enabled", id)
		}
		delete(got, id)
	}
	deployment := "Deployment/" + namespace + "/berg-api"
	if got[deployment] == nil {
		t.Fatalf("no Deployment in %v", slices.Sorted(maps.Keys(got)))
	}
	for _, objects := range []map[string]map[string]any{got, want} {
		api, _ := field(objects[deployment], "spec", "template", "spec", "containers", 0).(map[string]any)
		delete(api, "env") // its variables are tried below
		pod, _ := field(objects[deployment], "spec", "template", "spec").(map[string]any)
		delete(pod, "affinity") // values of the operator, which the API has too
		delete(pod, "tolerations")
	}
	compare(t, bared(got), bared(want))

	several := must(t, "api: {enabled: true, replicas: 3, platformNamespaces: [one, two], settings: {RATE: 1000000, TOKEN_SECRET: mine}, image: {tag: x}}\nfullnameOverride: mine-berg")
	for _, id := range []string{"Role/one/berg-api", "Role/two/berg-api", "RoleBinding/one/berg-api", "RoleBinding/two/berg-api"} {
		if several[id] == nil {
			t.Errorf("%s is missing", id)
		}
	}
	text, _ := yaml.Marshal(several[deployment])
	for _, part := range []string{"one,two", `value: "1000000"`, "value: mine", "berg-api:x", "replicas: 3", `name: BOOT_WAIT\n          value: 45s`, `name: OPERATOR_DEPLOYMENT\n          value: mine-berg-controller-manager`} {
		if !bytes.Contains(text, []byte(strings.ReplaceAll(part, `\n`, "\n"))) {
			t.Errorf("the Deployment has no %s:\n%s", part, text)
		}
	}
	const policy = "NetworkPolicy/" + namespace + "/berg-api-platforms"
	if several[policy] != nil {
		t.Error("namespaces that no value names are let in")
	}
	text, _ = yaml.Marshal(must(t, "api: {enabled: true, callers: [ctfd, envoy], scrapers: [observability]}")[policy])
	for _, part := range []string{"key: kubernetes.io/metadata.name", "- ctfd\n", "- envoy\n", "port: api\n", "- observability\n", "port: metrics\n"} {
		if !bytes.Contains(text, []byte(part)) {
			t.Errorf("the policy for platforms has no %q:\n%s", part, text)
		}
	}
	if text, _ := yaml.Marshal(several["Role/"+namespace+"/berg-api-tokens"]); !bytes.Contains(text, []byte("- mine")) {
		t.Errorf("the Role names another Secret than TOKEN_SECRET:\n%s", text)
	}
	if text, _ := yaml.Marshal(several["Role/"+namespace+"/berg-api-operator"]); !bytes.Contains(text, []byte("- mine-berg-controller-manager")) {
		t.Errorf("the Role names another Deployment than the operator's:\n%s", text)
	}
	for id, object := range must(t, "{families: {berg: false, quix: true}, api: {enabled: true}}") {
		if strings.Contains(id, "berg-api") {
			t.Errorf("%s comes without Challenges: %v", id, object)
		}
	}
	if _, _, err := render("api: {enabled: true, settings: {ADDITIONAL_POLICY: maybe}}", namespace); err == nil || !strings.Contains(err.Error(), "ADDITIONAL_POLICY") {
		t.Errorf("a wrong setting: %v", err)
	}
}

// settingsOfTheSample are the settings that agree with the Gateway of config/berg/samples/prerequisites.
const settingsOfTheSample = "settings: {CHALLENGE_HTTP_PORT: 443, CHALLENGE_TLS_PORT: 8443}\n"

// The gate is that of config/gate, and its Gateway that of the samples. A DaemonSet is that of config/gate/nodes.
func TestGateIsThatOfConfig(t *testing.T) {
	for values, folder := range map[string]string{"gate: {enabled: true}\n": "gate", "gate: {enabled: true, kind: DaemonSet}\n": "gate/nodes"} {
		want := built(t, "../../../config/"+folder)
		for id, object := range built(t, "../../../config/berg/samples/prerequisites") {
			if id != "Namespace/<nil>/berg" {
				want[id] = object
			}
		}
		got := must(t, values+settingsOfTheSample)
		for id := range must(t, settingsOfTheSample) {
			if want[id] != nil {
				t.Errorf("%s is there without gate.enabled", id)
			}
			delete(got, id)
		}
		for id, object := range got {
			if labels, _ := field(object, "metadata", "labels").(map[string]any); strings.Contains(id, "certificate") || strings.HasPrefix(id, "Gateway/") || strings.HasSuffix(id, "/berg-gateway-namespaces") {
				delete(labels, "app.kubernetes.io/name") // samples have no labels
				delete(labels, "app.kubernetes.io/part-of")
				if len(labels) == 0 {
					delete(object["metadata"].(map[string]any), "labels")
				}
			}
		}
		for _, objects := range []map[string]map[string]any{got, want} {
			for _, kind := range []string{"Deployment", "DaemonSet"} {
				pod, _ := field(objects[kind+"/"+namespace+"/berg-gate"], "spec", "template", "spec").(map[string]any)
				delete(pod, "affinity") // a value of the operator
				program, _ := field(pod, "containers", 0).(map[string]any)
				delete(program, "env") // its variables are tried below
			}
		}
		compare(t, bared(got), bared(want))
	}
	for id := range must(t, "{families: {berg: false, quix: true}, gate: {enabled: true}}") {
		if strings.Contains(id, "berg-gate") {
			t.Errorf("%s comes without Challenges", id)
		}
	}
}

// What its values say is what the gate, its Gateway and the operator have.
func TestGateByValues(t *testing.T) {
	const values = `
commonLabels: {app.kubernetes.io/name: mine}
imagePullSecrets: [{name: registry}]
serviceAccount: {name: ctf}
settings: {CHALLENGE_DOMAIN: ctf.example.org, CHALLENGE_HTTP_PORT: "30443", CHALLENGE_TLS_PORT: 30843, GATEWAY_NAME: front, GATEWAY_NAMESPACE: events, CHALLENGE_HTTP_LISTENER_NAME: web, CHALLENGE_TLS_LISTENER_NAME: raw}
gate:
  enabled: true
  replicas: "3"
  ports: {http: 30080, https: 30443, tls: 30843, more: 30999}
  service: {type: NodePort, externalTrafficPolicy: Cluster, annotations: {who: me}}
  gateway: {tlsSecret: certificate, issuerRef: {kind: ClusterIssuer, name: letsencrypt-dns}}
  image: {tag: x}
  resources: {requests: {cpu: 1}}
  terminationGracePeriodSeconds: 600
  nodeSelector: {role: front}
  tolerations: [{key: front, operator: Exists}]
  topologySpreadConstraints: null
  podDisruptionBudget: {maxUnavailable: 50%}
  scrapers: [observability]
  settings: {GATE_DRAIN: 9m, GATE_MAX_CONNECTIONS: 1000000, GATE_ADDRESSES: 192.0.2.1}
`
	objects, notes := asHelm(t, values)
	deployment, service := objects["Deployment/"+namespace+"/berg-gate"], objects["Service/"+namespace+"/berg-gate"]
	pod := field(deployment, "spec", "template", "spec")
	gateway := objects["Gateway/events/front"]
	certificate := objects["Certificate/events/certificate"]
	policy, _ := yaml.Marshal(objects["ValidatingAdmissionPolicy/<nil>/berg-gateway-namespaces"])
	if !strings.Contains(string(policy), "'system:serviceaccount:"+namespace+":ctf'") {
		t.Errorf("the policy does not know the operator's account:\n%s", policy)
	}
	namespaces, _ := variable(objects, "GATEWAY_DATAPLANE_NAMESPACES")
	variables := map[any]any{}
	env, _ := field(pod, "containers", 0, "env").([]any)
	for _, v := range env {
		variables[field(v, "name")] = field(v, "value")
	}
	for what, pair := range map[string][2]any{
		"replicas":           {field(deployment, "spec", "replicas"), 3.0},
		"image":              {field(pod, "containers", 0, "image"), "ghcr.io/bergctf/berg-gate:x"},
		"pull secret":        {field(pod, "imagePullSecrets", 0, "name"), "registry"},
		"node":               {field(pod, "nodeSelector", "role"), "front"},
		"toleration":         {field(pod, "tolerations", 0, "key"), "front"},
		"constraints":        {field(pod, "topologySpreadConstraints"), nil},
		"drain":              {field(pod, "terminationGracePeriodSeconds"), 600.0},
		"selected pods":      {field(deployment, "spec", "template", "metadata", "labels", "app.kubernetes.io/name"), "berg-gate"},
		"budget":             {field(objects["PodDisruptionBudget/"+namespace+"/berg-gate"], "spec", "maxUnavailable"), "50%"},
		"GATE_PORTS":         {variables["GATE_PORTS"], "30080,30443,30999,30843"},
		"GATE_DRAIN":         {variables["GATE_DRAIN"], "9m"},
		"first Gateways":     {variables["GATEWAY_NAMESPACE"], "events"},
		"connections":        {variables["GATE_MAX_CONNECTIONS"], "1000000"},
		"limit by default":   {variables["GATE_HOST_CONNECTIONS"], "1024"},
		"addresses":          {variables["GATE_ADDRESSES"], "192.0.2.1"},
		"Service":            {field(service, "spec", "type"), "NodePort"},
		"traffic":            {field(service, "spec", "externalTrafficPolicy"), "Cluster"},
		"annotation":         {field(service, "metadata", "annotations", "who"), "me"},
		"node port":          {field(service, "spec", "ports", 1, "nodePort"), 30443.0},
		"port":               {field(service, "spec", "ports", 1, "port"), 30443.0},
		"port of the pod":    {field(service, "spec", "ports", 1, "targetPort"), 38443.0},
		"listener":           {field(gateway, "spec", "listeners", 0, "name"), "web"},
		"protocol":           {field(gateway, "spec", "listeners", 0, "protocol"), "HTTPS"},
		"port of listener":   {field(gateway, "spec", "listeners", 0, "port"), 30443.0},
		"second listener":    {field(gateway, "spec", "listeners", 1, "name"), "raw"},
		"port of the second": {field(gateway, "spec", "listeners", 1, "port"), 30843.0},
		"host names":         {field(gateway, "spec", "listeners", 1, "hostname"), "*.ctf.example.org"},
		"certificate":        {field(gateway, "spec", "listeners", 1, "tls", "certificateRefs", 0, "name"), "certificate"},
		"right":              {field(objects["Role/events/berg-gate-certificate"], "rules", 0, "resourceNames"), []any{"certificate"}},
		"issuer":             {field(certificate, "spec", "issuerRef", "name"), "letsencrypt-dns"},
		"names":              {field(certificate, "spec", "dnsNames", 0), "*.ctf.example.org"},
		"let in":             {namespaces, namespace},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s is %v instead of %v", what, pair[0], pair[1])
		}
	}
	if text, _ := yaml.Marshal(objects["NetworkPolicy/"+namespace+"/berg-gate"]); !bytes.Contains(text, []byte("port: more")) || !bytes.Contains(text, []byte("metadata.name: observability")) {
		t.Errorf("the policy lacks a port or a namespace:\n%s", text)
	}
	if !strings.Contains(notes, "-n events get gateways.gateway.networking.k8s.io front") || strings.Contains(notes, "plain HTTP") || strings.Contains(notes, "Store the certificate") {
		t.Errorf("the notes:\n%s", notes)
	}
}

// The values that docs/berg/gate.md shows are values of the chart, with a Gateway by HTTPS.
func TestThePageOfTheGateShowsValues(t *testing.T) {
	page, err := os.ReadFile("../../../docs/berg/gate.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n(settings:.*?)```").FindAllSubmatch(page, -1)
	if len(shown) < 2 {
		t.Fatalf("the page shows %d sets of values", len(shown))
	}
	for _, values := range shown {
		if got := field(must(t, string(values[1]))["Gateway/berg/berg-gateway"], "spec", "listeners", 0, "protocol"); got != "HTTPS" {
			t.Errorf("with these values the first listener is %v:\n%s", got, values[1])
		}
	}
}

// Plain HTTP is as far as the default settings go. Settings that no Gateway could have are refused.
func TestGatewayOfTheChartFollowsSettings(t *testing.T) {
	for values, want := range map[string]string{
		"": "HTTP 80, TLS 443",
		"settings: {CHALLENGE_HTTP_PORT: 443, CHALLENGE_TLS_PORT: 8443, CHALLENGE_HTTP_TLS: false}": "HTTP 443, TLS 8443",
		"settings: {CHALLENGE_HTTP_PORT: 443, CHALLENGE_TLS_PORT: 8443, CHALLENGE_HTTP_TLS: null}":  "HTTPS 443, TLS 8443",
		"settings: {CHALLENGE_HTTP_PORT: null, CHALLENGE_TLS_PORT: null, CHALLENGE_HTTP_TLS: true}": "HTTP 80, TLS 443",
	} {
		objects, notes := asHelm(t, "gate: {enabled: true}\n"+values)
		var listeners []string
		all, _ := field(objects["Gateway/berg/berg-gateway"], "spec", "listeners").([]any)
		for _, l := range all {
			listeners = append(listeners, fmt.Sprint(field(l, "protocol"), " ", field(l, "port")))
			if needs := field(l, "protocol") != "HTTP"; (field(l, "tls") != nil) != needs {
				t.Errorf("%q: %v has a certificate: %t", values, field(l, "name"), !needs)
			}
		}
		if got := strings.Join(listeners, ", "); got != want {
			t.Errorf("%q: listeners are %s, want %s", values, got, want)
		}
		if strings.Contains(notes, "plain HTTP") != strings.Contains(want, " 80") {
			t.Errorf("%q: the notes:\n%s", values, notes)
		}
	}
	for values, want := range map[string]string{
		"settings: {CHALLENGE_HTTP_PORT: 8080}":              "settings.CHALLENGE_HTTP_PORT: 8080 is none of gate.ports",
		"settings: {CHALLENGE_HTTP_PORT: 443}":               "settings.CHALLENGE_TLS_PORT: must differ",
		"gate: {ports: {admin: 9090}}":                       "admin",
		"gate: {ports: {https: 60000}}":                      "https",
		"gate: {kind: StatefulSet}":                          "kind",
		"gate: {service: {type: ExternalName}}":              "type",
		"gate: {gateway: {tlsSecret: \"\"}}":                 "tlsSecret",
		"gate: {settings: {GATE_PORTS: \"80\"}}":             "GATE_PORTS",
		"gate: {settings: {GATE_TRUSTED_PROXIES: [a]}}":      "GATE_TRUSTED_PROXIES",
		"gate: {ports: {http: null, https: 443, tls: null}}": "none of gate.ports",
	} {
		given := "gate: {enabled: true}\n" + values
		if strings.HasPrefix(values, "gate: {") {
			given = strings.Replace(values, "gate: {", "gate: {enabled: true, ", 1)
		}
		if _, _, err := renderWith(engine.Engine{}, given, namespace); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not name %s", values, err, want)
		}
	}
	own := must(t, "gate: {enabled: true, gateway: {create: false}}\nsettings: {CHALLENGE_HTTP_PORT: 1, GATEWAY_DATAPLANE_NAMESPACES: [front]}")
	for _, id := range []string{"Gateway/berg/berg-gateway", "Role/berg/berg-gate-certificate", "ValidatingAdmissionPolicy/<nil>/berg-gateway-namespaces"} {
		if own[id] != nil {
			t.Errorf("%s is there without gate.gateway.create", id)
		}
	}
	if got, _ := variable(own, "GATEWAY_DATAPLANE_NAMESPACES"); got != "front" {
		t.Errorf("a value of GATEWAY_DATAPLANE_NAMESPACES is %v", got)
	}
	if got, _ := variable(must(t, ""), "GATEWAY_DATAPLANE_NAMESPACES"); got != "" {
		t.Errorf("without the gate GATEWAY_DATAPLANE_NAMESPACES is %v", got)
	}
}

// The receiver of webhooks is that of config/kibaship/pushes.
func TestReceiverIsThatOfConfig(t *testing.T) {
	want := built(t, "../../../config/kibaship/pushes")
	alone := "families: {kibaship: true}"
	got := must(t, alone+"\npushes: {enabled: true}")
	for id := range must(t, alone) {
		if want[id] != nil {
			t.Errorf("%s is there without pushes.enabled", id)
		}
		delete(got, id)
	}
	deployment := "Deployment/" + namespace + "/kibaship-pushes"
	for _, objects := range []map[string]map[string]any{got, want} {
		pod, _ := field(objects[deployment], "spec", "template", "spec").(map[string]any)
		delete(pod, "affinity") // values of the operator, which the receiver has too
		delete(pod, "tolerations")
	}
	compare(t, bared(got), bared(want))
	if objects := must(t, "pushes: {enabled: true}"); objects[deployment] != nil {
		t.Error("the receiver comes without KibaShip")
	}
}

// What installs seccomp profiles is that of config/berg/nested.
func TestSeccompProfilesAreThoseOfConfig(t *testing.T) {
	want := unhashed(t, built(t, "../../../config/berg/nested"))
	got := unhashed(t, must(t, "seccompProfiles: {install: true}"))
	for id := range must(t, "") {
		if want[id] != nil {
			t.Errorf("%s is there without seccompProfiles.install", id)
		}
		delete(got, id)
	}
	compare(t, bared(got), bared(want))

	changed := must(t, "{image: {tag: x}, imagePullSecrets: [{name: registry}], seccompProfiles: {install: true, kubeletFolder: /data/kubelet, tolerations: [{key: ctf, operator: Exists}]}}")
	text, _ := yaml.Marshal(changed["DaemonSet/berg-seccomp/berg-seccomp"])
	for _, part := range []string{"berg-operator:x", "path: /data/kubelet/seccomp", "key: ctf", "name: registry"} {
		if !bytes.Contains(text, []byte(part)) {
			t.Errorf("there is no %s", part)
		}
	}
	if objects := must(t, "{families: {berg: false, quix: true}, seccompProfiles: {install: true}}"); objects["DaemonSet/berg-seccomp/berg-seccomp"] != nil {
		t.Error("the DaemonSet comes without Challenges")
	}
}

var hash = regexp.MustCompile(`berg-seccomp-[0-9a-z]{10}\b`)

// unhashed returns objects without the hash in the name of the profile, which kustomize and the chart calculate differently.
func unhashed(t *testing.T, objects map[string]map[string]any) map[string]map[string]any {
	t.Helper()
	renamed := map[string]map[string]any{}
	for id, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var copied map[string]any
		if err := yaml.Unmarshal(hash.ReplaceAll(text, []byte("berg-seccomp-hash")), &copied); err != nil {
			t.Fatal(err)
		}
		renamed[hash.ReplaceAllString(id, "berg-seccomp-hash")] = copied
	}
	return renamed
}

// A changed profile has another name, so that the DaemonSet installs it.
func TestDaemonSetInstallsTheProfileByItsContent(t *testing.T) {
	objects := must(t, "seccompProfiles: {install: true}")
	volume := field(objects["DaemonSet/berg-seccomp/berg-seccomp"], "spec", "template", "spec", "volumes", 0, "configMap", "name")
	profile, err := os.ReadFile("../../../config/berg/nested/berg-nested.json")
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("berg-seccomp-%x", sha256.Sum256(profile))[:len("berg-seccomp-")+10]
	if volume != name || field(objects["ConfigMap/berg-seccomp/"+name], "data", "berg-nested.json") != string(profile) {
		t.Errorf("the DaemonSet installs %v, want %s with the profile of config/", volume, name)
	}
}

// On a cluster with Cilium the chart confines instances that end.
func TestDefaultDenyComesWithCilium(t *testing.T) {
	want := built(t, "../../../config/berg/default-deny")
	const kind = "cilium.io/v2/CiliumClusterwideNetworkPolicy"
	for values, comes := range map[string]bool{"": true, "families: {berg: false, quix: true}": false, "networkPolicy: {enabled: false}": false} {
		got, _, err := render(values, namespace, kind)
		if err != nil {
			t.Fatal(err)
		}
		for id, object := range want {
			if (got[id] != nil) != comes {
				t.Errorf("%q: %s is there: %t", values, id, got[id] != nil)
			}
			if comes && !reflect.DeepEqual(got[id], object) {
				t.Errorf("%s is %v, not %v", id, got[id], object)
			}
			if must(t, values)[id] != nil {
				t.Errorf("%s is there without Cilium", id)
			}
		}
	}
}

// Nothing stays in the namespace of config/, and names of objects do not follow that of the release.
func TestAnyNamespaceWillDo(t *testing.T) {
	objects, notes, err := render("{createNamespace: true, api: {enabled: true}, gate: {enabled: true}, seccompProfiles: {install: true}, rights: {check: true, nodes: true, prepull: true, record: true}, settings: {RECORD_NAMESPACE: kept}}", "elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	for id, object := range objects {
		if strings.HasPrefix(id, "CustomResourceDefinition/") {
			continue // the texts of fields
		}
		if text, _ := yaml.Marshal(object); bytes.Contains(text, []byte(namespace)) {
			t.Errorf("%s still speaks of %s", id, namespace)
		}
	}
	if objects["Namespace/<nil>/kept"] == nil || objects["Role/kept/berg-operator-berg-record"] == nil {
		t.Error("records are not where RECORD_NAMESPACE says")
	}
	if objects["Deployment/elsewhere/berg-operator-controller-manager"] == nil || !strings.Contains(notes, "-n elsewhere") {
		t.Errorf("the Deployment is not in its namespace, or the notes do not name it:\n%s", notes)
	}
}

func TestNotesTellWhatRemovalLeaves(t *testing.T) {
	for values, want := range map[string]string{
		"": "keeps the CRDs", "crds: {keep: false}": "BEFORE that", everything(t): "  usvc-dev.developer.microsoft.com\n",
	} {
		if _, notes, err := render(values, namespace); err != nil || !strings.Contains(notes, want) {
			t.Errorf("%q: error %v, notes without %q:\n%s", values, err, want, notes)
		}
	}
	if _, notes, err := render("settings: {CHALLENGE_DOMAIN: ctf.example.org}", namespace); err != nil || strings.Contains(notes, "only an example") {
		t.Errorf("error %v, notes about a domain that is set:\n%s", err, notes)
	}
}

func TestSchemaRefusesWhatTheOperatorWould(t *testing.T) {
	for values, want := range map[string]string{
		"settings: {CHALLENGE_HTTP_PORT: 70000}":              "CHALLENGE_HTTP_PORT",
		"settings: {CHALLENGE_HTTP_TLS: maybe}":               "CHALLENGE_HTTP_TLS",
		"settings: {CHALLENGE_INSTANCE_TIMEOUT: 2 hours}":     "CHALLENGE_INSTANCE_TIMEOUT",
		"settings: {NETWORK_POLICY: calico}":                  "NETWORK_POLICY",
		"settings: {CHALLENGE_MEMORY_LIMIT: much}":            "CHALLENGE_MEMORY_LIMIT",
		"settings: {CHALENGE_DOMAIN: ctf.example.org}":        "CHALENGE_DOMAIN",
		"settings: {ENABLED_APIS: quix.io}":                   "ENABLED_APIS",
		"families: {bergs: true}":                             "bergs",
		"replica: 1":                                          "replica",
		`replicas: "many"`:                                    "replicas",
		"fullnameOverride: " + strings.Repeat("a", 63):        "fullnameOverride",
		"image: {digest: latest}":                             "digest",
		"crds: {keep: sometimes}":                             "keep",
		"prometheus: {labels: [release]}":                     "labels",
		"settings: {CLUSTER_NODE_CIDRS: {first: 10.0.0.0/8}}": "CLUSTER_NODE_CIDRS",
		"settings: {CLUSTER_NODE_CIDRS: 10.0.0.0}":            "CLUSTER_NODE_CIDRS",
		"settings: {CLUSTER_POD_CIDRS: [10.0.0.0/8, 10.1]}":   "CLUSTER_POD_CIDRS",
	} {
		if _, _, err := render(values, namespace); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not name %s", values, err, want)
		}
	}
	for _, values := range []string{
		`settings: {CHALLENGE_INSTANCE_TIMEOUT: "", NETWORK_POLICY: "", CHALLENGE_CPU_LIMIT: ""}`,
		"settings: {CHALLENGE_INSTANCE_TIMEOUT: 1h30m0.5s, CHALLENGE_CPU_LIMIT: 2, CHALLENGE_MEMORY_LIMIT: 1e9, CHALLENGE_EGRESS_BANDWIDTH: 100M}",
	} {
		if _, _, err := render(values, namespace); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func TestHelmFindsNothingToSay(t *testing.T) {
	for _, message := range lint.RunAll(folder, nil, namespace).Messages {
		if message.Severity > support.InfoSev {
			t.Errorf("%s: %v", message.Path, message.Err)
		}
	}
}
