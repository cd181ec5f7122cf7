package deployment

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
)

var update = flag.Bool("update", false, "write the golden files")

func inputs(modify ...func(*Inputs)) Inputs {
	in := Inputs{
		UID: "d0", Name: types.NamespacedName{Namespace: "project-shop-ns-kibaship-com", Name: "project-shop-app-web-deployment-live-kibaship-com"},
		Generation: 3, Project: "shop", Application: "web", Deployment: "live", ApplicationName: "project-shop-app-web-kibaship-com",
		ProjectUUID: "0f0e0d0c-0b0a-4908-8706-050403020100", WorkspaceUUID: "1f0e0d0c-0b0a-4908-8706-050403020100",
		Git:    kibashipv1.GitRepository{Provider: kibashipv1.GitHub, Repository: "team/web", PublicAccess: true},
		Branch: "main",
		Builds: config.Builds{
			Providers: map[string]string{"github.com": "https://github.com", "bitbucket.com": "https://bitbucket.org"},
			GitImage:  "git:1", BuilderImage: "kaniko:1", Registry: "registry.example.org/kibaship", Timeout: 30 * time.Minute,
			Workspace: config.WorkspaceEmptyDir, StorageSize: resource.MustParse("24Gi"),
			Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourceEphemeralStorage: resource.MustParse("48Gi")},
		},
		PushImage: "operator:1",
	}
	for _, m := range modify {
		m(&in)
	}
	return in
}

func TestPlan(t *testing.T) {
	for name, modify := range map[string]func(*Inputs){
		"public": func(*Inputs) {},
		"private": func(in *Inputs) {
			in.Git.PublicAccess, in.Git.SecretRef = false, &kibashipv1.LocalReference{Name: "git"}
			in.Git.Provider, in.Git.RootDirectory = kibashipv1.Bitbucket, "./app"
			in.Commit = strings.Repeat("a", 40)
			in.Builds.RegistrySecret, in.Builds.CAConfigMap, in.Builds.BuilderArgs = "login", "ca", []string{"--registry-mirror=mirror.example.org"}
		},
		"volume": func(in *Inputs) {
			in.Git.SecretRef = &kibashipv1.LocalReference{Name: "git"}
			in.Builds.Workspace, in.Builds.StorageClass, in.Builds.RegistrySecret = config.WorkspaceVolume, "fast", "login"
		},
		"settings": func(in *Inputs) {
			in.Tag = "v1.0"
			in.Builds.PullSecret, in.Builds.CacheRegistry = "pull", "cache.example.org/builds"
			in.Git.DockerfilePath = "docker/web.Dockerfile"
			in.Git.BuildArgs = []kibashipv1.BuildArg{{Name: "MODE", Value: "a $b"}}
		},
		"generated": func(in *Inputs) {
			in.Builds.Limits = nil
			in.Builds.BaseImage, in.Git.BuildCommand, in.Git.StartCommand, in.Git.SPAOutputDirectory = "node:24", `npm run "build" $(params.git-branch)`, "npm start", "dist"
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs(modify)
			var got []byte
			for _, u := range []any{pipeline(in).Object, newPipelineRun(in).Object} {
				text, err := yaml.Marshal(u)
				if err != nil {
					t.Fatal(err)
				}
				got = append(append(got, "---\n"...), text...)
			}
			file := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("go test -update accepts it:\n%s", diff)
			}
		})
	}
}

func TestNamesFit(t *testing.T) {
	long := inputs(func(in *Inputs) { in.Project, in.Application = strings.Repeat("p", 39), strings.Repeat("a", 60) })
	seen := map[string]bool{}
	for generation := range int64(12) {
		long.Generation = generation
		for _, again := range []string{"", "1", "2"} {
			long.Again = again
			name := long.runName()
			if len(name) > maxName || seen[name] {
				t.Errorf("%s: %d characters, known: %v", name, len(name), seen[name])
			}
			seen[name] = true
		}
	}
	if name := long.pipelineName(); len(name) > maxName {
		t.Errorf("%s has %d characters", name, len(name))
	}
}

func TestContextNeverLeavesTheRepository(t *testing.T) {
	for _, tc := range []struct{ path, root, want string }{
		{"", "./", ""}, {"a", "./b", "a/b"}, {"../../etc", "./", "etc"}, {"a", "../../..", ""}, {"/a/", "", "a"},
	} {
		in := inputs(func(in *Inputs) { in.Git.Path, in.Git.RootDirectory = tc.path, tc.root })
		if got := in.context(); got != tc.want {
			t.Errorf("%q, %q: %q, want %q", tc.path, tc.root, got, tc.want)
		}
	}
}

func TestWhereTheSourceIs(t *testing.T) {
	in := inputs(func(in *Inputs) { in.Git.Provider, in.Git.Repository = kibashipv1.Bitbucket, "team/web.git" })
	if got := in.url(); got != "https://bitbucket.org/team/web.git" {
		t.Errorf("got %s", got)
	}
}

func TestWhatIsBuiltIsNotBuiltAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		modify func(*Inputs, *kibashipv1.PipelineRunStatus, *kibashipv1.DeploymentStatus)
		want   bool
	}{
		"the same commit": {func(*Inputs, *kibashipv1.PipelineRunStatus, *kibashipv1.DeploymentStatus) {}, true},
		"another commit": {func(in *Inputs, _ *kibashipv1.PipelineRunStatus, _ *kibashipv1.DeploymentStatus) {
			in.Commit = digest[7:47]
		}, false},
		"a switch of what starts builds": {func(in *Inputs, _ *kibashipv1.PipelineRunStatus, _ *kibashipv1.DeploymentStatus) {
			in.Git.AutoBuild = &kibashipv1.AutoBuild{Enabled: true}
		}, true},
		"a branch":          {func(in *Inputs, _ *kibashipv1.PipelineRunStatus, _ *kibashipv1.DeploymentStatus) { in.Commit = "" }, false},
		"another directory": {func(in *Inputs, _ *kibashipv1.PipelineRunStatus, _ *kibashipv1.DeploymentStatus) { in.Git.Path = "x" }, false},
		"another registry": {func(in *Inputs, _ *kibashipv1.PipelineRunStatus, _ *kibashipv1.DeploymentStatus) {
			in.Builds.Registry = "x.example"
		}, false},
		"a run that failed": {func(_ *Inputs, r *kibashipv1.PipelineRunStatus, _ *kibashipv1.DeploymentStatus) {
			r.Phase = kibashipv1.DeploymentFailed
		}, false},
		"a run that is asked for": {func(in *Inputs, _ *kibashipv1.PipelineRunStatus, _ *kibashipv1.DeploymentStatus) { in.Again = "1" }, false},
		"a run that was asked for": {func(in *Inputs, _ *kibashipv1.PipelineRunStatus, s *kibashipv1.DeploymentStatus) {
			in.Again, s.RunAgain = "1", "1"
		}, true},
		"one that was asked for once": {func(_ *Inputs, _ *kibashipv1.PipelineRunStatus, s *kibashipv1.DeploymentStatus) { s.RunAgain = "1" }, true},
		"its own run, which is over": {func(in *Inputs, r *kibashipv1.PipelineRunStatus, _ *kibashipv1.DeploymentStatus) {
			r.Name = in.runName()
		}, false},
	} {
		in := inputs(func(in *Inputs) { in.Commit = commit })
		d := aDeployment()
		run := kibashipv1.PipelineRunStatus{Name: "earlier", Phase: kibashipv1.DeploymentSucceeded, Source: in.source(), Image: in.repository() + "@" + digest}
		tc.modify(&in, &run, &d.Status)
		d.Status.RunHistory = []kibashipv1.PipelineRunStatus{run}
		if got := findEarlier(Observed{Deployment: d}, in); (got == "earlier") != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
