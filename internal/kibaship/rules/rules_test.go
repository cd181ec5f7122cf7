package rules

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

const (
	goodUUID  = "6f6f2c9e-3b1a-4f0e-9a51-0d7c6a4c2b10"
	otherUUID = "0f0e0d0c-0b0a-4908-8706-050403020100"
)

func goodProject(modify ...func(*kibashipv1.Project)) *kibashipv1.Project {
	p := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: "mystore", Labels: map[string]string{kibashipv1.LabelUUID: goodUUID}}}
	for _, m := range modify {
		m(p)
	}
	return p
}

func goodApplication(modify ...func(*kibashipv1.Application)) *kibashipv1.Application {
	a := &kibashipv1.Application{
		ObjectMeta: metav1.ObjectMeta{Name: "project-mystore-app-web-kibaship-com", Namespace: "project-mystore-ns-kibaship-com"},
		Spec: kibashipv1.ApplicationSpec{
			ProjectRef: kibashipv1.LocalReference{Name: "mystore"}, Type: kibashipv1.TypeGitRepository,
			GitRepository: &kibashipv1.GitRepository{
				Provider: kibashipv1.GitHub, Repository: "org/repo", RootDirectory: "./", SecretRef: &kibashipv1.LocalReference{Name: "token"},
			},
		},
	}
	for _, m := range modify {
		m(a)
	}
	return a
}

// tells compares violations with the fields that are wanted, in their order.
func tells(t *testing.T, got Violations, reason string, fields ...string) {
	t.Helper()
	if len(got) != len(fields) {
		t.Fatalf("%d violations, want %d: %s", len(got), len(fields), got)
	}
	for i, v := range got {
		if v.Field != fields[i] || v.Reason != reason || v.Message == "" {
			t.Errorf("%+v, want %s at %s", v, reason, fields[i])
		}
	}
}

func TestProject(t *testing.T) {
	const uuidLabel = "metadata.labels[platform.kibaship.com/uuid]"
	for name, tc := range map[string]struct {
		modify func(*kibashipv1.Project)
		reason string
		fields []string
	}{
		"good":           {func(*kibashipv1.Project) {}, "", nil},
		"with workspace": {func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelWorkspaceUUID] = otherUUID }, "", nil},
		"longest name":   {func(p *kibashipv1.Project) { p.Name = strings.Repeat("a", 39) }, "", nil},
		"name too long":  {func(p *kibashipv1.Project) { p.Name = strings.Repeat("a", 40) }, kibashipv1.ReasonInvalidName, []string{"metadata.name"}},
		"name with dots": {func(p *kibashipv1.Project) { p.Name = "a.b" }, kibashipv1.ReasonInvalidName, []string{"metadata.name"}},
		"reserved":       {func(p *kibashipv1.Project) { p.Name = "kube-public" }, kibashipv1.ReasonInvalidName, []string{"metadata.name"}},
		"reserved start": {func(p *kibashipv1.Project) { p.Name = "default-x" }, kibashipv1.ReasonInvalidName, []string{"metadata.name"}},
		"like reserved":  {func(p *kibashipv1.Project) { p.Name = "defaults" }, "", nil},
		"no uuid":        {func(p *kibashipv1.Project) { p.Labels = nil }, kibashipv1.ReasonInvalidLabels, []string{uuidLabel}},
		"upper case":     {func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = strings.ToUpper(goodUUID) }, kibashipv1.ReasonInvalidLabels, []string{uuidLabel}},
		"short uuid":     {func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = goodUUID[1:] }, kibashipv1.ReasonInvalidLabels, []string{uuidLabel}},
		"bad workspace": {
			func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelWorkspaceUUID] = "" }, kibashipv1.ReasonInvalidLabels,
			[]string{"metadata.labels[platform.kibaship.com/workspace-uuid]"},
		},
		"bounds, default and nodes": {func(p *kibashipv1.Project) {
			p.Spec.ApplicationTypes.MySQLCluster = &kibashipv1.ClusterTypePolicy{
				DefaultLimits: kibashipv1.ClusterLimits{Limits: kibashipv1.Limits{CPU: "8"}, Nodes: 9},
				ResourceBounds: kibashipv1.ClusterBounds{
					Min: kibashipv1.ClusterLimits{Limits: kibashipv1.Limits{Memory: "1Gi"}, Nodes: 5},
					Max: kibashipv1.ClusterLimits{Limits: kibashipv1.Limits{CPU: "4", Memory: "1000Mi"}, Nodes: 3},
				},
			}
		}, kibashipv1.ReasonInvalid, []string{
			"spec.applicationTypes.mysqlCluster.defaultLimits.cpu", "spec.applicationTypes.mysqlCluster.resourceBounds.max.memory",
			"spec.applicationTypes.mysqlCluster.resourceBounds.max.nodes", "spec.applicationTypes.mysqlCluster.defaultLimits.nodes",
		}},
	} {
		t.Run(name, func(t *testing.T) { tells(t, Project(goodProject(tc.modify)), tc.reason, tc.fields...) })
	}
}

func TestUUIDStays(t *testing.T) {
	other := goodProject(func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = otherUUID })
	bad := goodProject(func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = "bad" })
	tells(t, ProjectChange(goodProject(), other), kibashipv1.ReasonInvalidLabels, "metadata.labels[platform.kibaship.com/uuid]")
	tells(t, ProjectChange(goodProject(), goodProject()), "")
	tells(t, ProjectChange(bad, goodProject()), "") // mended
}

func TestTheOlderOneHasTheUUID(t *testing.T) {
	noon := metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	later := metav1.NewTime(noon.Add(time.Second))
	born := func(name string, at metav1.Time) *kibashipv1.Project {
		return goodProject(func(p *kibashipv1.Project) { p.Name, p.CreationTimestamp = name, at })
	}
	a, b, c := born("a", later), born("b", noon), born("c", noon)
	all := []kibashipv1.Project{*a, *b, *c}
	const field = "metadata.labels[platform.kibaship.com/uuid]"
	tells(t, UUIDTaken(a, all), kibashipv1.ReasonUUIDTaken, field)
	tells(t, UUIDTaken(b, all), "")
	tells(t, UUIDTaken(c, all), kibashipv1.ReasonUUIDTaken, field)
	tells(t, UUIDInUse(born("a-new-one", noon), all), kibashipv1.ReasonUUIDTaken, field) // of the same second, and first by name
	tells(t, UUIDInUse(b, []kibashipv1.Project{*b}), "")
	tells(t, UUIDTaken(b, []kibashipv1.Project{*goodProject(func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = otherUUID })}), "")
}

func TestApplication(t *testing.T) {
	git := func(modify func(*kibashipv1.GitRepository)) func(*kibashipv1.Application) {
		return func(a *kibashipv1.Application) { modify(a.Spec.GitRepository) }
	}
	image := func(image string) func(*kibashipv1.Application) {
		return func(a *kibashipv1.Application) {
			a.Spec.Type, a.Spec.DockerImage = kibashipv1.TypeDockerImage, &kibashipv1.DockerImage{Image: image}
		}
	}
	of := func(t kibashipv1.ApplicationType) func(*kibashipv1.Application) {
		return func(a *kibashipv1.Application) { a.Spec.Type = t }
	}
	const spec = kibashipv1.ReasonInvalidSpec
	for name, tc := range map[string]struct {
		modify func(*kibashipv1.Application)
		reason string
		fields []string
	}{
		"good":             {func(*kibashipv1.Application) {}, "", nil},
		"public":           {git(func(g *kibashipv1.GitRepository) { g.PublicAccess, g.SecretRef = true, nil }), "", nil},
		"name":             {func(a *kibashipv1.Application) { a.Name = "web" }, kibashipv1.ReasonInvalidName, []string{"metadata.name"}},
		"other's name":     {func(a *kibashipv1.Application) { a.Name = "project-other-app-web-kibaship-com" }, kibashipv1.ReasonInvalidName, []string{"metadata.name"}},
		"namespace":        {func(a *kibashipv1.Application) { a.Namespace = "default" }, kibashipv1.ReasonWrongNamespace, []string{"metadata.namespace"}},
		"no project":       {func(a *kibashipv1.Application) { a.Spec.ProjectRef.Name = "" }, spec, []string{"spec.projectRef.name"}},
		"no block":         {func(a *kibashipv1.Application) { a.Spec.GitRepository = nil }, spec, []string{"spec.gitRepository"}},
		"no image block":   {of(kibashipv1.TypeDockerImage), spec, []string{"spec.dockerImage"}},
		"no mysql":         {of(kibashipv1.TypeMySQL), spec, []string{"spec.mysql"}},
		"no mysqlCluster":  {of(kibashipv1.TypeMySQLCluster), spec, []string{"spec.mysqlCluster"}},
		"no postgres":      {of(kibashipv1.TypePostgres), spec, []string{"spec.postgres"}},
		"no pgCluster":     {of(kibashipv1.TypePostgresCluster), spec, []string{"spec.postgresCluster"}},
		"no such type":     {of("Redis"), spec, []string{"spec.type"}},
		"private, open":    {git(func(g *kibashipv1.GitRepository) { g.SecretRef = nil }), spec, []string{"spec.gitRepository.secretRef"}},
		"provider":         {git(func(g *kibashipv1.GitRepository) { g.Provider = "example.org" }), spec, []string{"spec.gitRepository.provider"}},
		"one word":         {git(func(g *kibashipv1.GitRepository) { g.Repository = "org" }), spec, []string{"spec.gitRepository.repository"}},
		"three words":      {git(func(g *kibashipv1.GitRepository) { g.Repository = "a/b/c" }), spec, []string{"spec.gitRepository.repository"}},
		"dots":             {git(func(g *kibashipv1.GitRepository) { g.Repository = "../b" }), spec, []string{"spec.gitRepository.repository"}},
		"dots, both":       {git(func(g *kibashipv1.GitRepository) { g.Repository = "../.." }), spec, []string{"spec.gitRepository.repository"}},
		"no name":          {git(func(g *kibashipv1.GitRepository) { g.Repository = "team/.git" }), spec, []string{"spec.gitRepository.repository"}},
		"path up":          {git(func(g *kibashipv1.GitRepository) { g.Path = "a/../../b" }), spec, []string{"spec.gitRepository.path"}},
		"path inside":      {git(func(g *kibashipv1.GitRepository) { g.Path = "a/../b" }), "", nil},
		"rooted":           {git(func(g *kibashipv1.GitRepository) { g.Path, g.RootDirectory = "/backend", "/src/" }), "", nil},
		"root":             {git(func(g *kibashipv1.GitRepository) { g.Path = "/" }), "", nil},
		"rooted, path up":  {git(func(g *kibashipv1.GitRepository) { g.Path = "/../etc" }), spec, []string{"spec.gitRepository.path"}},
		"line break":       {git(func(g *kibashipv1.GitRepository) { g.SPAOutputDirectory = "a\nb" }), spec, []string{"spec.gitRepository.spaOutputDirectory"}},
		"image":            {image("nginx"), "", nil},
		"image with all":   {image("registry.example.org:5000/team/app:1.2@sha256:" + strings.Repeat("ab", 32)), "", nil},
		"image, localhost": {image("localhost:5000/app"), "", nil},
		"image, bare host": {image("[fd00::1]:5000/app"), "", nil},
		"image, spaces":    {image("not an image"), spec, []string{"spec.dockerImage.image"}},
		"image, upper":     {image("Team/app"), spec, []string{"spec.dockerImage.image"}}, // a host needs a dot or a port
		"image, letter":    {image("registry.example.org/x"), "", nil},
		"image, sha512":    {image("app@sha512:" + strings.Repeat("ab", 64)), spec, []string{"spec.dockerImage.image"}},
		"image, all upper": {image("APP"), spec, []string{"spec.dockerImage.image"}},
		"patterns": {git(func(g *kibashipv1.GitRepository) {
			g.AutoBuild = &kibashipv1.AutoBuild{Branches: []string{"main", "release/*", "v[0-9]?"}, Tags: []string{"*"}}
		}), "", nil},
		"pattern, not closed": {git(func(g *kibashipv1.GitRepository) { g.AutoBuild = &kibashipv1.AutoBuild{Branches: []string{"a[b"}} }), spec, []string{"spec.gitRepository.autoBuild.branches"}},
		"pattern, two lines":  {git(func(g *kibashipv1.GitRepository) { g.AutoBuild = &kibashipv1.AutoBuild{Tags: []string{"a\nb"}} }), spec, []string{"spec.gitRepository.autoBuild.tags"}},
		"image, no tag":       {image("app:"), spec, []string{"spec.dockerImage.image"}},
		"image, URL":          {image("https://registry.example.org/app"), spec, []string{"spec.dockerImage.image"}},
		"image, short sum":    {image("app@sha256:abc"), spec, []string{"spec.dockerImage.image"}},
	} {
		t.Run(name, func(t *testing.T) { tells(t, Application(goodApplication(tc.modify)), tc.reason, tc.fields...) })
	}
}

func TestAllowed(t *testing.T) {
	limited := kibashipv1.ProjectSpec{Volumes: kibashipv1.Volumes{MaxStorageSize: "1Ti"}}
	limited.ApplicationTypes.GitRepository = &kibashipv1.TypePolicy{
		Enabled: true, DefaultLimits: kibashipv1.Limits{CPU: "1"},
		ResourceBounds: kibashipv1.Bounds{Min: kibashipv1.Limits{CPU: "0.5", Memory: "1Gi"}, Max: kibashipv1.Limits{CPU: "4"}},
	}
	limited.ApplicationTypes.PostgresCluster = &kibashipv1.ClusterTypePolicy{
		Enabled: true, ResourceBounds: kibashipv1.ClusterBounds{Min: kibashipv1.ClusterLimits{Nodes: 2}, Max: kibashipv1.ClusterLimits{Nodes: 3}},
	}
	off := kibashipv1.ProjectSpec{}
	off.ApplicationTypes.GitRepository = &kibashipv1.TypePolicy{}
	asks := func(l kibashipv1.Limits) func(*kibashipv1.Application) {
		return func(a *kibashipv1.Application) { a.Spec.Limits = l }
	}
	nodes := func(n int32) func(*kibashipv1.Application) {
		return func(a *kibashipv1.Application) {
			a.Spec.Type, a.Spec.PostgresCluster = kibashipv1.TypePostgresCluster, &kibashipv1.DatabaseCluster{Replicas: n}
		}
	}
	const bounds = kibashipv1.ReasonOutOfBounds
	for name, tc := range map[string]struct {
		modify func(*kibashipv1.Application)
		spec   kibashipv1.ProjectSpec
		reason string
		fields []string
	}{
		"nothing said":          {asks(kibashipv1.Limits{CPU: "64"}), kibashipv1.ProjectSpec{}, "", nil},
		"switched off":          {asks(kibashipv1.Limits{}), off, kibashipv1.ReasonTypeDisabled, []string{"spec.type"}},
		"cluster, nothing said": {nodes(3), kibashipv1.ProjectSpec{}, kibashipv1.ReasonTypeDisabled, []string{"spec.type"}},
		"default":               {asks(kibashipv1.Limits{}), limited, "", nil},
		"at the bounds":         {asks(kibashipv1.Limits{CPU: "4", Memory: "1024Mi", Storage: "1024Gi"}), limited, "", nil},
		"too little":            {asks(kibashipv1.Limits{CPU: "0.4", Memory: "1000Mi"}), limited, bounds, []string{"spec.limits.cpu", "spec.limits.memory"}},
		"too much":              {asks(kibashipv1.Limits{CPU: "4.1", Storage: "1025Gi"}), limited, bounds, []string{"spec.limits.cpu", "spec.limits.storage"}},
		"too few nodes":         {nodes(1), limited, bounds, []string{"spec.postgresCluster.replicas"}},
		"enough nodes":          {nodes(2), limited, "", nil},
		"too many nodes":        {nodes(4), limited, bounds, []string{"spec.postgresCluster.replicas"}},
	} {
		t.Run(name, func(t *testing.T) {
			tells(t, Allowed(&goodApplication(tc.modify).Spec, &tc.spec), tc.reason, tc.fields...)
		})
	}
	if got := Effective(&goodApplication().Spec, &limited); got != (kibashipv1.Limits{CPU: "1"}) {
		t.Errorf("the size is %+v", got)
	}
}

func TestDeployment(t *testing.T) {
	for name, tc := range map[string]struct{ name, of, reason, field string }{
		"good":         {"project-a-app-b-deployment-c-kibaship-com", "project-a-app-b-kibaship-com", "", ""},
		"off pattern":  {"staging", "project-a-app-b-kibaship-com", kibashipv1.ReasonInvalidName, "metadata.name"},
		"other app":    {"project-a-app-x-deployment-c-kibaship-com", "project-a-app-b-kibaship-com", kibashipv1.ReasonNameMismatch, "metadata.name"},
		"other's":      {"project-x-app-b-deployment-c-kibaship-com", "project-a-app-b-kibaship-com", kibashipv1.ReasonNameMismatch, "metadata.name"},
		"bad referent": {"project-a-app-b-deployment-c-kibaship-com", "web", kibashipv1.ReasonInvalidSpec, "spec.applicationRef.name"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &kibashipv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: tc.name}, Spec: kibashipv1.DeploymentSpec{ApplicationRef: kibashipv1.LocalReference{Name: tc.of}}}
			if tc.field == "" {
				tells(t, Deployment(d), "")
			} else {
				tells(t, Deployment(d), tc.reason, tc.field)
			}
		})
	}
}

func TestSecrets(t *testing.T) {
	a := goodApplication(func(a *kibashipv1.Application) {
		a.Spec.GitRepository.Env = &kibashipv1.LocalReference{Name: "env"}
		a.Spec.MySQL = &kibashipv1.Database{SecretRef: &kibashipv1.LocalReference{Name: "of-another-type"}}
	})
	got := Secrets(&a.Spec)
	if len(got) != 2 || got["token"] != "spec.gitRepository.secretRef" || got["env"] != "spec.gitRepository.env" {
		t.Errorf("Secrets %v", got)
	}
}

func TestParseImage(t *testing.T) {
	sum := "sha256:" + strings.Repeat("ab", 32)
	for _, tc := range []struct{ image, tag, reference, shown string }{
		{"nginx", "", "index.docker.io/library/nginx:latest", "latest"},
		{"nginx:1", "2", "index.docker.io/library/nginx:2", "2"},
		{"nginx@" + sum, "", "index.docker.io/library/nginx@" + sum, ""},
		{"nginx:1@" + sum, "", "index.docker.io/library/nginx@" + sum, "1"},
		{"registry.example.org/team/app:1@" + sum, "2", "registry.example.org/team/app@" + sum, "2"},
		{"nginx", "not a tag", "", ""},
		{strings.Repeat("a", 600), "", "", ""},
	} {
		got, err := ParseImage(tc.image, tc.tag)
		if (err != nil) != (tc.reference == "") || err == nil && (got.Reference.Name() != tc.reference || got.Tag != tc.shown) {
			t.Errorf("%s, tag %q: %v, %v", tc.image, tc.tag, got, err)
		}
	}
}
