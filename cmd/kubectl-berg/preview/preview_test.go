package preview

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/sealed"
)

const before = `
containers:
- {hostname: web, image: "web:1", environment: {COLOUR: red, N: 1}, ports: [{name: web, port: 80, type: publicHttpRoute}], resourceRequests: {cpu: 0.5}}
- {hostname: db, image: "db:1", ports: [{port: 5432}], additionalCapabilities: [CAP_CHOWN]}
`

func TestSummaryOfARollout(t *testing.T) {
	for name, tc := range map[string]struct{ after, want string }{
		"nothing":    {before, "web stays; db stays"},
		"an image":   {`{containers: [{hostname: web, image: "web:2", environment: {COLOUR: red, N: 1}, ports: [{name: web, port: 80, type: publicHttpRoute}], resourceRequests: {cpu: 0.5}}, {hostname: db, image: "db:1", ports: [{port: 5432}], additionalCapabilities: [CHOWN]}]}`, "web restarts (image web:1 → web:2); db stays"},
		"a variable": {`{containers: [{hostname: web, image: "web:1", environment: {COLOUR: secret, N: "1"}, ports: [{name: web, port: 80, type: publicHttpRoute}], resourceRequests: {cpu: 500m}}, {hostname: db, image: "db:1", ports: [{port: 5432}], additionalCapabilities: [CHOWN]}]}`, "web restarts (environment COLOUR); db stays"},
		"a name of a port": {
			`{containers: [{hostname: web, image: "web:1", environment: {COLOUR: red, N: 1}, ports: [{name: web, port: 80, type: publicHttpRoute}], resourceRequests: {cpu: 0.5}}, {hostname: db, image: "db:1", ports: [{name: sql, port: 5432}], additionalCapabilities: [CHOWN]}]}`,
			"web restarts (addresses in *_ENDPOINT: +sql (db:5432/tcp, internalPort)); db restarts (addresses in *_ENDPOINT: +sql (db:5432/tcp, internalPort))",
		},
		"a type without a name": {
			`{allowOutboundTraffic: true, containers: [{hostname: web, image: "web:1", environment: {COLOUR: red, N: 1}, ports: [{name: web, port: 80, type: publicHttpRoute}], resourceRequests: {cpu: 0.5}}, {hostname: db, image: "db:1", ports: [{port: 5432, type: publicPort}], additionalCapabilities: [CHOWN]}]}`,
			"web stays; db stays; the network policy changes",
		},
		"one more, one less": {
			`{containers: [{hostname: web, image: "web:1", environment: {COLOUR: red, N: 1}, ports: [{name: web, port: 80, type: publicHttpRoute}], resourceRequests: {cpu: 0.5}}, {hostname: bot, image: "bot:1"}]}`,
			"web stays; bot starts; db ends",
		},
	} {
		i := &bergv1.ChallengeInstance{}
		raw, err := yaml.YAMLToJSON([]byte(before))
		if err != nil {
			t.Fatal(err)
		}
		i.Status.ChallengeSnapshot = &runtime.RawExtension{Raw: raw}
		c := &bergv1.Challenge{}
		if err := yaml.Unmarshal([]byte(tc.after), &c.Spec); err != nil {
			t.Fatal(err)
		}
		p, err := Compare(i, c)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Summary(); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, tc.want)
		}
	}
}

// What the snapshot hides is told by the condition.
func TestSummaryOfWhatIsNotShown(t *testing.T) {
	const started = `{"containers":[{"hostname":"web","image":"web:1","environment":["COLOUR"]},{"hostname":"db","image":"db:1","environment":[]}],"sealed":"0.AA=="}`
	const now = `{containers: [{hostname: web, image: "web:1", environment: {COLOUR: red}}, {hostname: db, image: "db:1", args: [a]}]}`
	for name, tc := range map[string]struct{ reason, message, challenge, want string }{
		"nothing": {bergv1.ReasonUpToDate, "", now, "web stays; db stays"},
		"a value": {
			bergv1.ReasonChallengeChanged, "The Challenge was changed" + sealed.Note([]sealed.Changed{{Hostname: "web", What: []string{"environment COLOUR"}}}),
			now, "web restarts (environment COLOUR); db stays",
		},
		"a value and an image": {
			bergv1.ReasonChallengeChanged, "The Challenge was changed" + sealed.Note([]sealed.Changed{{Hostname: "db", What: []string{"args"}}}),
			strings.ReplaceAll(now, "web:1", "web:2"), "web restarts (image web:1 → web:2); db restarts (args)",
		},
		"an image":     {bergv1.ReasonChallengeChanged, "The Challenge was changed", strings.ReplaceAll(now, "web:1", "web:2"), "web restarts (image web:1 → web:2); db stays"},
		"the settings": {bergv1.ReasonConfigurationChanged, "", now, "web stays; db stays; the operator's settings have changed: any pod may restart"},
		"lost":         {bergv1.ReasonValuesLost, "", now, "web restarts (what it was started with is lost); db restarts (what it was started with is lost)"},
	} {
		i := &bergv1.ChallengeInstance{}
		i.Status.ChallengeSnapshot = &runtime.RawExtension{Raw: []byte(started)}
		i.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionUpToDate, Reason: tc.reason, Message: tc.message}}
		c := &bergv1.Challenge{}
		if err := yaml.Unmarshal([]byte(tc.challenge), &c.Spec); err != nil {
			t.Fatal(err)
		}
		p, err := Compare(i, c)
		if got := p.Summary(); err != nil || got != tc.want {
			t.Errorf("%s:\n got %s, error %v\nwant %s", name, got, err, tc.want)
		}
	}
}

// What the Challenge does not say is in the condition.
func TestSummaryOfWhatChangedOutsideTheChallenge(t *testing.T) {
	for reason, want := range map[string]string{
		bergv1.ReasonUpToDate:             "web starts",
		bergv1.ReasonConfigurationChanged: "web starts; the operator's settings have changed: any pod may restart",
		bergv1.ReasonImageChanged:         "web starts; an image has changed under the same name: its pods restart",
	} {
		i := &bergv1.ChallengeInstance{}
		i.Status.Conditions = []metav1.Condition{{Type: bergv1.ConditionUpToDate, Reason: reason}}
		p, err := Compare(i, &bergv1.Challenge{Spec: bergv1.ChallengeSpec{Containers: []bergv1.Container{{Hostname: "web"}}}})
		if got := p.Summary(); err != nil || got != want {
			t.Errorf("%s: %s, error %v", reason, got, err)
		}
	}
}
