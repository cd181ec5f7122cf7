package livepage

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"html/template"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// fill writes a text into every string below a value, and makes what is not there.
func fill(v reflect.Value, text string, deep int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		if v.IsNil() && deep > 0 && v.CanSet() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if !v.IsNil() {
			fill(v.Elem(), text, deep-1)
		}
	case reflect.Struct:
		for n := range v.NumField() {
			if v.Field(n).CanSet() {
				fill(v.Field(n), text, deep)
			}
		}
	case reflect.Slice:
		if deep > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), text, deep-1)
		}
	case reflect.Map:
		if v.Type().Key().Kind() == reflect.String && v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf(text).Convert(v.Type().Key()), reflect.ValueOf(text).Convert(v.Type().Elem()))
		}
	default:
	}
}

// escapes are the forms in which a text may be in a page, a stream or an address.
func escapes(text string) []string {
	quotedJSON, _ := json.Marshal(text) // strings always have a JSON form
	quotedTwice, _ := json.Marshal(html.EscapeString(text))
	all := []string{
		text, html.EscapeString(text), template.HTMLEscapeString(text), template.JSEscapeString(text), template.URLQueryEscaper(text),
		url.QueryEscape(text), url.PathEscape(text), strings.Trim(string(quotedJSON), `"`), strings.Trim(string(quotedTwice), `"`),
		hex.EncodeToString([]byte(text)), base64.StdEncoding.EncodeToString([]byte(text)), base64.URLEncoding.EncodeToString([]byte(text)),
		"not for the wall", "not+for+the+wall", "not%20for%20the%20wall",
	}
	for offset := range 3 { // within a longer text in base64, without what its neighbours change
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + text))
		all = append(all, encoded[4:len(encoded)-4])
	}
	return all
}

// secretChallenge is a Challenge with the flag wherever its spec has a text.
func secretChallenge(name string) *bergv1.Challenge {
	c := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: name, Generation: 1}}
	fill(reflect.ValueOf(&c.Spec), theFlag, 6)
	c.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": theFlag, bergv1.AnnotationFrozen: theFlag}
	return c
}

// secretInstance has the flag wherever the page has no field for what is there.
func secretInstance(name string, phase bergv1.Phase, cause bergv1.Cause) *bergv1.ChallengeInstance {
	i := anInstance(name, phase, cause)
	fill(reflect.ValueOf(&i.Status.PendingChanges), theFlag, 6)
	i.Spec.Flag, i.Status.Seed, i.Status.NamespaceTokenHash, i.Spec.Timeout = theFlag, theFlag, theFlag, theFlag
	i.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": theFlag, bergv1.AnnotationRollout: theFlag}
	i.Labels = map[string]string{"flag": theFlag}
	i.Finalizers, i.ManagedFields = []string{theFlag}, []metav1.ManagedFieldsEntry{{Manager: theFlag}}
	return i
}

// What the pages are made of has no flag, and what players write is text.
func TestNoFlagAndNoMarkupOfPlayers(t *testing.T) {
	now := clocktesting.NewFakeClock(begin)
	b, server := served(t, now)
	see := func(in func(any), object any) {
		t.Helper()
		kept, err := trim(object)
		if err != nil {
			t.Fatal(err)
		}
		in(kept)
	}
	see(b.seeOther, secretChallenge("web"))
	sized := secretChallenge("sized") // with amounts that can be read, so that its line is complete
	sized.Spec.MaxInstances, sized.Annotations = 3, nil
	for n := range sized.Spec.Containers {
		sized.Spec.Containers[n].ResourceLimits, sized.Spec.Containers[n].ResourceRequests = nil, nil
	}
	see(b.seeOther, sized)
	check := &bergv1.ChallengeCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "berg", Name: "solver", Annotations: map[string]string{"a": theFlag}}}
	fill(reflect.ValueOf(&check.Spec), theFlag, 6)
	fill(reflect.ValueOf(&check.Status), theFlag, 6)
	check.Spec.ChallengeRef.Name, check.Status.LastResult.Result = "sized", bergv1.CheckTooSlow
	see(b.seeOther, check)

	const script = `"><script>alert(1)</script>`
	hostile := secretInstance("h", bergv1.PhaseRunning, "")
	hostile.Spec.OwnerID = script
	hostile.Spec.ChallengeRef.Name = `web' onmouseover='alert(2); $(reboot)`
	hostile.Status.Services[0].URL = `javascript:alert(3)`
	put(t, b, failing(hostile, `</td></tr><img src=x onerror=alert(4)>`))
	failed := secretInstance("i", bergv1.PhaseFailed, bergv1.CauseImageUnavailable)
	failed.UID = "uid-of-i"
	failed.Spec.ChallengeRef.Name = `';reboot;'`
	put(t, b, failing(failed, "</script><script>alert(5)"))
	for n := range 3 { // they wait: the queue shows them
		waiting := secretInstance(strings.Repeat("q", n+1), bergv1.PhasePending, bergv1.CauseQueued)
		waiting.Spec.OwnerID = script
		put(t, b, waiting)
	}
	for _, e := range []*corev1.Event{
		{
			ObjectMeta: metav1.ObjectMeta{UID: "e", Annotations: map[string]string{"a": theFlag}}, Reason: script, Message: "<img src=x>", Type: "Warning",
			InvolvedObject: corev1.ObjectReference{UID: "uid-of-i", FieldPath: theFlag}, ReportingInstance: theFlag, Action: theFlag,
		},
	} {
		if err := b.events.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "records", Name: "uid-of-e", Labels: map[string]string{bergv1.LabelSource: script, "flag": theFlag},
		Annotations: map[string]string{bergv1.AnnotationInstance: "berg/gone<img", bergv1.AnnotationChallenge: script, "flag": theFlag},
	}}
	kept, err := trimRecord(metadata)
	if err != nil {
		t.Fatal(err)
	}
	b.seeRecord(kept)
	b.options.RecordNamespace = "records"
	b.sample(begin.Add(time.Minute))
	b.sample(begin.Add(2 * time.Minute))

	stream := openStream(t, server.URL+"/live/events")
	put(t, b, failing(failed.DeepCopy(), "</script><script>alert(6)"))
	shown := map[string]string{}
	for _, path := range []string{"", "?q=" + url.QueryEscape(`"><script>alert(7)</script>`), "?challenge=" + url.QueryEscape(script), "instances/h", "instances/i", "instances/q"} {
		var status int
		if status, _, shown[path] = get(t, server.URL+"/live/"+path); status != http.StatusOK {
			t.Errorf("%q: %d", path, status)
		}
	}
	shown["parts"] = stream.until(t, now, "parts", "problems")
	shown["rows"] = stream.until(t, now, "rows", "alert(6)")
	single := openStream(t, server.URL+"/live/instances/i/events")
	put(t, b, failing(failed.DeepCopy(), "</script><script>alert(8)"))
	shown["the stream of one"] = single.until(t, now, "parts", "alert(8)")
	shown["a record"] = recordPage(t, hostileRecord(script))

	for path, page := range shown {
		for _, escaped := range escapes(theFlag) {
			if strings.Contains(page, escaped) {
				t.Errorf("%q shows a flag as %q", path, escaped)
			}
		}
		for _, markup := range []string{"<script>alert", "<img", "onmouseover='", `href="javascript:`, "</script><script>"} {
			if strings.Contains(page, markup) {
				t.Errorf("%q has %q of a player", path, markup)
			}
		}
	}
	// The test sees what it looks for: what may be shown is there.
	for path, want := range map[string]string{
		"": "alert(1)", "instances/i": "Event ", "parts": "gone", "the stream of one": "alert(8)", "a record": "alert(9)", "instances/q": "queue",
	} {
		if !strings.Contains(html.UnescapeString(shown[path]), want) {
			t.Errorf("%q does not show %q", path, want)
		}
	}
	// A line to copy has each hostile name as one word of a shell.
	if want := `kubectl berg rollout ''\'';reboot;'\''' -n berg`; !strings.Contains(html.UnescapeString(shown["instances/i"]), want) {
		t.Errorf("there is no line %s", want)
	}
}

func recordPage(t *testing.T, r Record) string {
	t.Helper()
	endpoint, err := New(newBoard(options, clocktesting.NewFakeClock(begin)), clocktesting.NewFakeClock(begin), time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := endpoint.pages.ExecuteTemplate(&page, "record", r); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// hostileRecord is one whose player had a name, and wrote into a log.
func hostileRecord(text string) Record {
	r := &bergv1.ChallengeInstanceRecord{}
	fill(reflect.ValueOf(&r.Spec), text, 6)
	r.Spec.Containers[0].Log = "<flag>\n</pre><script>alert(9)</script>\n"
	r.Spec.Incomplete = "</p><img src=x>"
	return newRecord(Ended{UID: "u", Namespace: "berg", Name: text, Owner: text, Challenge: text}, r, []Event{{Reason: text, Message: text}})
}
