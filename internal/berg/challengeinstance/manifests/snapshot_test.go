package manifests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/sealkey"
)

// testRing has one key.
var testRing, _ = (&sealkey.Ring{}).With(make([]byte, sealkey.Size))

const (
	secretValue = "hunter2"
	secretive   = `
containers:
- {hostname: web, image: i, environment: {ADMIN_PASSWORD: hunter2, PORT: 80}, ports: [{port: 80, type: publicHttpRoute}],
   readinessProbe: {httpGet: {port: 80, httpHeaders: [{name: Authorization, value: hunter2}]}}}
- {hostname: db, image: i, command: [db, --password, hunter2], args: [hunter2], livenessProbe: {exec: {command: [check, hunter2]}}}
- {hostname: cache, image: i}
`
)

func challengeFrom(t testing.TB, text string) *bergv1.Challenge {
	t.Helper()
	c := &bergv1.Challenge{}
	if err := yaml.Unmarshal([]byte(text), &c.Spec); err != nil {
		t.Fatal(err)
	}
	return c
}

// startedWith is an instance as the API server has it after its start.
func startedWith(t testing.TB, ring *sealkey.Ring, c *bergv1.Challenge) *bergv1.ChallengeInstance {
	t.Helper()
	s := NewSnapshot(c)
	s.Defaults = NewDefaults(testConfig(t, nil).Challenge)
	i := &bergv1.ChallengeInstance{}
	i.UID = "7c0ffee0-1111-4222-8333-444455556666"
	var err error
	if i.Status.ChallengeSnapshot, err = s.Encode(ring, i.UID); err != nil {
		t.Fatal(err)
	}
	return i
}

func TestASnapshotShowsNoSecret(t *testing.T) {
	i := startedWith(t, testRing, challengeFrom(t, secretive))
	raw := string(i.Status.ChallengeSnapshot.Raw)
	if strings.Contains(raw, secretValue) {
		t.Errorf("%s", raw)
	}
	for _, shown := range []string{`"environment":["ADMIN_PASSWORD","PORT"]`, `"hostname":"db"`, `"type":"publicHttpRoute"`, `"domain":`} {
		if !strings.Contains(raw, shown) {
			t.Errorf("%s is not in %s", shown, raw)
		}
	}
}

func TestHowASnapshotOpens(t *testing.T) {
	c := challengeFrom(t, secretive)
	other, err := (&sealkey.Ring{}).With(sealkey.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	both, err := testRing.With(sealkey.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	plain := func(i *bergv1.ChallengeInstance) { // as versions have stored it that sealed nothing
		i.Status.ChallengeSnapshot.Raw = []byte(asJSON(t, map[string]any{"containers": c.Spec.Containers}))
	}
	without := func(what string) func(*bergv1.ChallengeInstance) {
		return func(i *bergv1.ChallengeInstance) {
			var all map[string]any
			if err := json.Unmarshal(i.Status.ChallengeSnapshot.Raw, &all); err != nil {
				t.Fatal(err)
			}
			delete(all, what)
			i.Status.ChallengeSnapshot.Raw = []byte(asJSON(t, all))
		}
	}
	for name, tc := range map[string]struct {
		ring   *sealkey.Ring
		change func(*bergv1.ChallengeInstance)
		want   Seal
	}{
		"with its key":               {testRing, nil, SealCurrent},
		"with a former key":          {both, nil, SealOutdated},
		"with another key":           {other, nil, SealLost},
		"without a key":              {nil, nil, SealLost},
		"copied to another instance": {testRing, func(i *bergv1.ChallengeInstance) { i.UID = "another" }, SealLost},
		"without what is sealed":     {testRing, without("sealed"), SealLost},
		"with other containers": {testRing, func(i *bergv1.ChallengeInstance) {
			i.Status.ChallengeSnapshot.Raw = []byte(strings.Replace(string(i.Status.ChallengeSnapshot.Raw), `{"hostname":"cache","image":"i","environment":[]}`, `{"hostname":"cache"},{"hostname":"another"}`, 1))
		}, SealLost},
		"of an earlier version":             {testRing, plain, SealOutdated},
		"of an earlier version, and no key": {nil, plain, SealOutdated},
	} {
		i := startedWith(t, testRing, c)
		if tc.change != nil {
			tc.change(i)
		}
		s, err := StoredSnapshot(i, tc.ring)
		if err != nil || s.Seal != tc.want {
			t.Errorf("%s: %+v, error %v", name, s, err)
			continue
		}
		if opens := tc.want != SealLost; s.Matches(c) != opens || strings.Contains(fmt.Sprint(asJSON(t, s.Containers)), secretValue) != opens {
			t.Errorf("%s: %s", name, asJSON(t, s.Containers))
		}
		if tc.want != SealOutdated {
			continue
		}
		again, err := s.Encode(both, i.UID)
		if err != nil || strings.Contains(string(again.Raw), secretValue) {
			t.Errorf("%s, sealed again: %s, error %v", name, again.Raw, err)
			continue
		}
		i.Status.ChallengeSnapshot = again
		if s, err := StoredSnapshot(i, both); err != nil || s.Seal != SealCurrent || !s.Matches(c) {
			t.Errorf("%s, sealed again: %+v, error %v", name, s, err)
		}
	}
}

// Most of what is simple has nothing to seal, and is stored as by earlier versions.
func TestWithoutSecretsNothingIsSealed(t *testing.T) {
	c := challengeFrom(t, `containers: [{hostname: web, image: i, environment: {}, ports: [{port: 80}]}]`)
	i := startedWith(t, testRing, c)
	if raw := string(i.Status.ChallengeSnapshot.Raw); strings.Contains(raw, "sealed") || strings.Contains(raw, "environment") {
		t.Error(raw)
	}
	if s, err := StoredSnapshot(i, nil); err != nil || s.Seal != SealCurrent || !s.Matches(c) {
		t.Errorf("%+v, error %v", s, err)
	}
}

func TestASnapshotThatIsNoneIsAnError(t *testing.T) {
	i := &bergv1.ChallengeInstance{}
	if s, err := StoredSnapshot(i, testRing); s != nil || err != nil {
		t.Errorf("%+v, error %v", s, err)
	}
	i.Status.ChallengeSnapshot = &runtime.RawExtension{Raw: []byte(`{"containers":[{"environment":1,"hostname":"hunter2"}]}`)}
	if _, err := StoredSnapshot(i, testRing); err == nil || !strings.Contains(err.Error(), "status.challengeSnapshot") || strings.Contains(err.Error(), secretValue) {
		t.Errorf("error %v", err)
	}
}

func TestValuesOfTheChallenge(t *testing.T) {
	c := challengeFrom(t, secretive)
	i := startedWith(t, testRing, c)
	lost, err := StoredSnapshot(i, nil)
	if err != nil || lost.Seal != SealLost {
		t.Fatalf("%+v, error %v", lost, err)
	}
	for name, tc := range map[string]struct {
		now  string
		want bool
	}{
		"as it was":                       {secretive, true},
		"another value":                   {strings.ReplaceAll(secretive, secretValue, "hunter3"), true},
		"another image":                   {strings.ReplaceAll(secretive, "image: i", "image: j"), false},
		"another name of a variable":      {strings.ReplaceAll(secretive, "PORT", "ADDRESS"), false},
		"one variable less":               {strings.ReplaceAll(secretive, ", PORT: 80", ""), false},
		"one container less":              {strings.ReplaceAll(secretive, "- {hostname: cache, image: i}", ""), false},
		"other traffic":                   {secretive + "allowOutboundTraffic: true", false},
		"something that no instance runs": {secretive + "description: other", true},
	} {
		now := challengeFrom(t, tc.now)
		found, ok := lost.WithValuesFrom(now)
		if ok != tc.want {
			t.Errorf("%s: %v", name, ok)
		}
		if ok && (found.Seal != SealOutdated || !found.Matches(now) || found.Defaults == nil) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	if lost.Seal != SealLost || lost.Matches(c) {
		t.Errorf("the snapshot itself was changed: %+v", lost)
	}
}

// Where the values are lost, pods keep those that they run with.
func TestPodsKeepWhatTheyRunWith(t *testing.T) {
	i := startedWith(t, testRing, challengeFrom(t, secretive))
	known, err := StoredSnapshot(i, testRing)
	if err != nil {
		t.Fatal(err)
	}
	lost, err := StoredSnapshot(i, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := testInputs(testConfig(t, nil), *known)
	before := PlanWorkloads(in, nil)
	in.Challenge, in.Running = *lost, map[string]corev1.Container{}
	for _, d := range before {
		in.Running[d.Name] = d.Spec.Template.Spec.Containers[0]
	}
	if got, want := asJSON(t, PlanWorkloads(in, nil)), asJSON(t, before); got != want {
		t.Errorf("the pods would restart:\n%s\n%s", got, want)
	}
	if !strings.Contains(asJSON(t, before), secretValue) {
		t.Error("the pods have no secret: this proves nothing")
	}
}

func TestChangesOfWhatIsNotShown(t *testing.T) {
	i := startedWith(t, testRing, challengeFrom(t, secretive))
	s, err := StoredSnapshot(i, testRing)
	if err != nil {
		t.Fatal(err)
	}
	now := challengeFrom(t, strings.NewReplacer("ADMIN_PASSWORD: hunter2", "ADMIN_PASSWORD: hunter3", "args: [hunter2]", "args: [hunter3]", "hostname: cache", "hostname: queue").Replace(secretive))
	if got := fmt.Sprint(s.ChangesOfPrivate(now)); got != "[{web [environment ADMIN_PASSWORD]} {db [args]}]" {
		t.Error(got)
	}
}

// BenchmarkStoredSnapshot is what each reconciliation of a live instance does.
func BenchmarkStoredSnapshot(b *testing.B) {
	large := "containers:\n"
	for n := range 16 {
		large += fmt.Sprintf("- {hostname: c%d, image: i, environment: {", n)
		for v := range 64 {
			large += fmt.Sprintf("V%d: %q, ", v, strings.Repeat("x", 64))
		}
		large += "}, ports: [{port: 80}]}\n"
	}
	for name, text := range map[string]string{"three containers": secretive, "16 containers with 64 variables": large} {
		c := challengeFrom(b, text)
		i := startedWith(b, testRing, c)
		readable := i.DeepCopy()
		readable.Status.ChallengeSnapshot.Raw, _ = json.Marshal(NewSnapshot(c).plain())
		for form, of := range map[string]*bergv1.ChallengeInstance{"sealed": i, "readable": readable} {
			b.Run(name+", "+form, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := StoredSnapshot(of, testRing); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
