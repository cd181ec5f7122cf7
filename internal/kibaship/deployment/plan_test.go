package deployment

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestAnotherDeploymentMayHaveBuiltIt(t *testing.T) {
	in := inputs(func(in *Inputs) { in.Commit = commit })
	built := kibashipv1.PipelineRunStatus{Name: "theirs", Phase: kibashipv1.DeploymentSucceeded, Source: in.source(), Image: in.repository() + "@" + digest}
	sibling := *aDeployment()
	sibling.UID = "another"
	sibling.Status.RunHistory = []kibashipv1.PipelineRunStatus{{Name: "failed", Phase: kibashipv1.DeploymentFailed, Source: in.source()}, built}
	o := Observed{Deployment: aDeployment(), Siblings: []kibashipv1.Deployment{sibling}}
	if run := findAdopted(o, in); run == nil || run.Name != "theirs" {
		t.Errorf("adopted %+v", run)
	}
	for title, modify := range map[string]func(*Inputs){
		"another commit":          func(in *Inputs) { in.Commit = digest[7:47] },
		"another argument":        func(in *Inputs) { in.Git.BuildArgs = []kibashipv1.BuildArg{{Name: "WORD", Value: "x"}} },
		"a branch":                func(in *Inputs) { in.Commit = "" },
		"a run that is asked for": func(in *Inputs) { in.Again = "1" },
		"itself":                  func(in *Inputs) { in.UID = "another" },
	} {
		other := in
		modify(&other)
		if run := findAdopted(o, other); run != nil {
			t.Errorf("%s: adopted %s", title, run.Name)
		}
	}

	// Its record becomes the Deployment's own, also behind five newer runs.
	d := aDeployment()
	for n := range kibashipv1.HistoryLimit {
		at := metav1.NewTime(now.Add(time.Duration(n) * time.Minute))
		d.Status.RunHistory = append(d.Status.RunHistory, kibashipv1.PipelineRunStatus{Name: strconv.Itoa(n), Phase: kibashipv1.DeploymentFailed, StartTime: &at, CompletionTime: &at})
	}
	early := metav1.NewTime(now.Add(-time.Hour))
	built.StartTime, built.CompletionTime = &early, &early
	in.Adopted, in.Earlier = &built, built.Name
	out := Outcome{Observed: Observed{Deployment: d, Tekton: true}, In: &in}
	for range 2 {
		computeHistory(out, time.Hour, now)
		if len(d.Status.RunHistory) != kibashipv1.HistoryLimit || d.Status.CurrentPipelineRun.Name != "theirs" || d.Status.LastSuccessfulRun.Image != built.Image {
			t.Fatalf("the status is %+v", d.Status)
		}
		in.Adopted = nil // by now the own history has it
	}
}

func TestWhichBuildsHaveEnded(t *testing.T) {
	at := func(minute int) *metav1.Time { return &metav1.Time{Time: now.Add(time.Duration(minute) * time.Minute)} }
	running := kibashipv1.PipelineRunStatus{Name: "run", Phase: kibashipv1.DeploymentRunning, StartTime: at(-9)}
	over := running
	over.Phase, over.CompletionTime = kibashipv1.DeploymentSucceeded, at(-2)
	for title, tc := range map[string]struct {
		known  []kibashipv1.PipelineRunStatus
		runs   []Run
		tekton bool
		want   string
	}{
		"it runs":                           {[]kibashipv1.PipelineRunStatus{running}, []Run{{Name: "run", Phase: kibashipv1.DeploymentRunning, Started: at(-9)}}, true, ""},
		"it has ended":                      {[]kibashipv1.PipelineRunStatus{running}, []Run{{Name: "run", Phase: kibashipv1.DeploymentSucceeded, Started: at(-9), Completed: at(-2), ImageBytes: 7}}, true, "run true 420 7;"},
		"it was never seen to run":          {nil, []Run{{Name: "run", Phase: kibashipv1.DeploymentFailed, Started: at(-9), Completed: at(-2)}}, true, "run false 420 0;"},
		"it never started":                  {nil, []Run{{Name: "run", Phase: kibashipv1.DeploymentFailed, Completed: at(-2)}}, true, ""},
		"it is recorded":                    {[]kibashipv1.PipelineRunStatus{over}, []Run{{Name: "run", Phase: kibashipv1.DeploymentSucceeded, Started: at(-9), Completed: at(-2)}}, true, ""},
		"it was deleted":                    {[]kibashipv1.PipelineRunStatus{running}, nil, true, "run false 540 0;"},
		"it was deleted, and waits again":   {[]kibashipv1.PipelineRunStatus{running}, []Run{{Name: "run", Phase: kibashipv1.DeploymentRunning}}, true, "run false 540 0;"},
		"it was deleted, and is over again": {[]kibashipv1.PipelineRunStatus{running}, []Run{{Name: "run", Phase: kibashipv1.DeploymentSucceeded, Started: at(-4), Completed: at(-2)}}, true, "run true 120 0;run false 540 0;"},
		"Tekton is removed":                 {[]kibashipv1.PipelineRunStatus{running}, nil, false, ""},
	} {
		d := aDeployment()
		d.Status.RunHistory = tc.known
		got := ""
		for _, b := range endedBuilds(d, tc.runs, tc.tekton, now) {
			got += fmt.Sprintf("%s %v %d %d;", b.Run, b.Succeeded, b.Seconds(), b.ImageBytes)
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", title, got, tc.want)
		}
	}
}
