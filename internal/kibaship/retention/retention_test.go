package retention

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
)

const (
	repository = "registry.example.org/kibaship/shop/web"
	runs       = "project-shop-app-"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func digestFor(letter string) string { return "sha256:" + strings.Repeat(letter, 64) }

func commit(letter string) string { return strings.Repeat(letter, 40) }

// newImage returns one that was built days ago.
func newImage(letter string, days int, more ...string) registry.Stored {
	return registry.Stored{
		Digest: digestFor(letter), Tags: append([]string{commit(letter), runs + "web-deployment-live-run-1"}, more...), Created: now.AddDate(0, 0, -days),
	}
}

func names(references ...string) *Names {
	named := newNames(must(name.NewRepository(repository)))
	for _, reference := range references {
		named.add(reference)
	}
	return named
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestWhichImagesAreDeleted(t *testing.T) {
	all := []registry.Stored{newImage("a", 1), newImage("b", 20), newImage("c", 40), newImage("d", 50), newImage("e", 60)}
	for title, tc := range map[string]struct {
		images []registry.Stored
		named  *Names
		keep   policy
		want   string
	}{
		"by count and age":               {all, names(), policy{2, 45 * 24 * time.Hour}, "ed"},
		"by count alone":                 {all, names(), policy{2, 0}, "edc"},
		"by age alone":                   {all, names(), policy{0, 30 * 24 * time.Hour}, "edc"},
		"everything that nothing names":  {all, names(), policy{0, 0}, "edcba"},
		"fewer than the count":           {all, names(), policy{5, 0}, ""},
		"none is old":                    {all, names(), policy{0, 70 * 24 * time.Hour}, ""},
		"named by digest":                {all, names(repository+"@"+digestFor("d"), repository+"@"+digestFor("a")), policy{0, 0}, "ecb"},
		"named by commit":                {all, names(repository + ":" + commit("e")), policy{0, 0}, "dcba"},
		"named by tag and digest":        {all, names(repository + ":" + commit("e") + "@" + digestFor("a")), policy{0, 0}, "dcb"},
		"named in another repository":    {all, names("registry.example.org/kibaship/shop/webs@"+digestFor("e"), "registry.example.com/kibaship/shop/web@"+digestFor("e")), policy{4, 0}, "e"},
		"a tag that a person gave":       {[]registry.Stored{newImage("a", 1), newImage("b", 20, "v1.2.0")}, names(), policy{0, 0}, "a"},
		"a signature":                    {[]registry.Stored{{Digest: digestFor("a"), Tags: []string{"sha256-" + strings.Repeat("b", 64) + ".sig"}, Created: now.AddDate(-1, 0, 0)}}, names(), policy{0, 0}, ""},
		"a run of another Project":       {[]registry.Stored{{Digest: digestFor("a"), Tags: []string{"project-other-app-web-run-1"}, Created: now.AddDate(-1, 0, 0)}}, names(), policy{0, 0}, ""},
		"without a time":                 {[]registry.Stored{{Digest: digestFor("a"), Tags: []string{commit("a")}}}, names(), policy{0, 0}, ""},
		"of a commit in the future":      {[]registry.Stored{newImage("a", -400), newImage("b", 40)}, names(), policy{0, time.Hour}, "b"},
		"of the same time":               {[]registry.Stored{newImage("b", 40), newImage("a", 40)}, names(), policy{1, 0}, "b"},
		"nothing is there":               {nil, names(), policy{0, 0}, ""},
		"the newest is named by nothing": {all[:1], names(), policy{1, time.Hour}, ""},
	} {
		got := ""
		for _, old := range decide(tc.images, tc.named, runs, tc.keep, now) {
			got += old.Digest[7:8]
		}
		if got != tc.want {
			t.Errorf("%s: deleted %q, want %q", title, got, tc.want)
		}
	}
}

func TestWhatNamesAnImage(t *testing.T) {
	run := func(letter string) kibashipv1.PipelineRunStatus {
		return kibashipv1.PipelineRunStatus{Image: repository + "@" + digestFor(letter)}
	}
	named := names()
	asking := &kibashipv1.Deployment{
		Spec: kibashipv1.DeploymentSpec{GitRepository: &kibashipv1.DeploymentSource{CommitSHA: commit("9")}},
		Status: kibashipv1.DeploymentStatus{
			BuiltImage: &kibashipv1.BuiltImage{Reference: repository + "@" + digestFor("1")}, CurrentPipelineRun: ptr.To(run("2")),
			LastSuccessfulRun: ptr.To(run("3")), RunHistory: []kibashipv1.PipelineRunStatus{run("4"), {Image: ""}, run("5")},
		},
	}
	named.addDeployment(asking, true)
	for _, spec := range []kibashipv1.DockerImage{{Image: repository, Tag: commit("6")}, {Image: repository + ":" + commit("7")}, {Image: repository + ":v1@" + digestFor("8"), Tag: "v2"}} {
		named.addApplication(&kibashipv1.Application{Spec: kibashipv1.ApplicationSpec{Type: kibashipv1.TypeDockerImage, DockerImage: &spec}})
	}
	pod := map[string]any{
		"spec": map[string]any{
			"initContainers": []any{map[string]any{"image": repository + "@" + digestFor("a")}},
			"containers":     []any{map[string]any{"name": "x", "image": repository + ":" + commit("b")}},
			"volumes":        []any{map[string]any{"image": map[string]any{"reference": repository + "@" + digestFor("c")}}},
		},
		"status": map[string]any{"containerStatuses": []any{map[string]any{"image": "sha256:" + strings.Repeat("0", 64), "imageID": "docker-pullable://" + repository + "@" + digestFor("d")}}},
	}
	named.addObject(map[string]any{"spec": map[string]any{"jobTemplate": map[string]any{"spec": map[string]any{"template": pod}}}})
	for _, letter := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d"} {
		if !named.has(registry.Stored{Digest: digestFor(letter)}) && !named.has(registry.Stored{Digest: digestFor("f"), Tags: []string{commit(letter)}}) {
			t.Errorf("%s is not named", letter)
		}
	}
	for _, tag := range []string{"v1", "v2"} {
		if !named.has(registry.Stored{Digest: digestFor("f"), Tags: []string{tag}}) {
			t.Errorf("tag %s is not named", tag)
		}
	}
	if named.has(newImage("e", 1)) {
		t.Error("an image is named that nothing names")
	}
	elsewhere := names()
	elsewhere.addDeployment(asking, false)
	if elsewhere.has(newImage("9", 1)) || !elsewhere.has(newImage("1", 1)) {
		t.Error("the commit that a Deployment of another Application asks for has another image, and the image that it names is this one")
	}
	hub := newNames(must(name.NewRepository("docker.io/team/shop/web")))
	hub.add("team/shop/web:latest@" + digestFor("a"))
	hub.add("index.docker.io/team/shop/web@" + digestFor("b"))
	if !hub.digests.HasAll(digestFor("a"), digestFor("b")) {
		t.Error("Docker Hub has several names, and one was not known")
	}
}

func TestThePolicyOfAnApplication(t *testing.T) {
	defaults := config.ImageRetention{Count: 10, Age: 720 * time.Hour}
	for title, tc := range map[string]struct {
		spec *kibashipv1.ImageRetention
		want policy
	}{
		"none":      {nil, policy{10, 720 * time.Hour}},
		"a count":   {&kibashipv1.ImageRetention{Count: ptr.To(int32(0))}, policy{0, 720 * time.Hour}},
		"an age":    {&kibashipv1.ImageRetention{Age: &metav1.Duration{}}, policy{10, 0}},
		"all of it": {&kibashipv1.ImageRetention{Count: ptr.To(int32(3)), Age: &metav1.Duration{Duration: time.Hour}}, policy{3, time.Hour}},
	} {
		if got := newPolicy(tc.spec, defaults); got != tc.want {
			t.Errorf("%s: %+v, want %+v", title, got, tc.want)
		}
	}
}

func TestADeploymentThatMayPush(t *testing.T) {
	status := func(phase kibashipv1.DeploymentPhase, run kibashipv1.DeploymentPhase) *kibashipv1.Deployment {
		d := &kibashipv1.Deployment{Status: kibashipv1.DeploymentStatus{Phase: phase, ObservedGeneration: 3}}
		d.Generation = 3
		if run != "" {
			d.Status.CurrentPipelineRun = &kibashipv1.PipelineRunStatus{Phase: run}
		}
		return d
	}
	fresh := status(kibashipv1.DeploymentWaiting, kibashipv1.DeploymentSucceeded)
	fresh.Generation = 4
	may := []*kibashipv1.Deployment{
		fresh,
		{ObjectMeta: metav1.ObjectMeta{Generation: 1}},
		status(kibashipv1.DeploymentInitializing, ""),
		status(kibashipv1.DeploymentRunning, kibashipv1.DeploymentRunning), status(kibashipv1.DeploymentWaiting, kibashipv1.DeploymentRunning),
	}
	if index := slices.IndexFunc(may, func(d *kibashipv1.Deployment) bool { return !unsettled(d) }); index >= 0 {
		t.Errorf("%+v pushes nothing", may[index].Status)
	}
	for _, d := range []*kibashipv1.Deployment{status(kibashipv1.DeploymentWaiting, ""), status(kibashipv1.DeploymentSucceeded, kibashipv1.DeploymentSucceeded), status(kibashipv1.DeploymentFailed, kibashipv1.DeploymentFailed)} {
		if unsettled(d) {
			t.Errorf("%+v may push", d.Status)
		}
	}
}
