package monitoring

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/config/receiver"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/common/model"
)

const notifications = "docs/notifications.md"

// chat takes what is sent to Discord and Slack.
type chat struct {
	*httptest.Server
	mu   sync.Mutex
	sent map[string][]string // by path
}

func newChat(t *testing.T) *chat {
	t.Helper()
	c := &chat{sent: map[string][]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !json.Valid(body) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent[r.URL.Path] = append(c.sent[r.URL.Path], string(body))
		if r.URL.Path == "/slack" {
			_, _ = io.WriteString(w, "ok")
			return
		}
		w.WriteHeader(http.StatusNoContent) // as Discord answers
	}))
	t.Cleanup(c.Close)
	return c
}

// take returns the messages that came since the last call.
func (c *chat) take() map[string][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = map[string][]string{}
	return sent
}

// alertmanager is the configuration of the page, as Alertmanager reads it, with the URLs of a chat.
func alertmanager(t *testing.T, to *chat) (*config.Config, map[string][]notify.Integration) {
	t.Helper()
	_, rest, _ := strings.Cut(string(read(t, notifications)), "```yaml\n")
	text, _, found := strings.Cut(rest, "\n```\n")
	if !found {
		t.Fatalf("%s has no configuration", notifications)
	}
	secrets := t.TempDir()
	for _, name := range []string{"discord", "slack"} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(to.URL+"/"+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := config.Load(strings.ReplaceAll(text, "/etc/alertmanager/secrets/crew-webhooks", secrets))
	if err != nil {
		t.Fatalf("Alertmanager refuses the configuration of %s: %v", notifications, err)
	}
	templates, err := template.FromGlobs(nil)
	if err != nil {
		t.Fatal(err)
	}
	templates.ExternalURL = &url.URL{Scheme: "http", Host: "alertmanager.example.com"}
	integrations := map[string][]notify.Integration{}
	for _, r := range parsed.Receivers {
		if integrations[r.Name], err = receiver.BuildReceiverIntegrations(r, templates, nil); err != nil {
			t.Fatal(err)
		}
	}
	return parsed, integrations
}

// send routes alerts as Alertmanager does, and notifies the receiver.
func send(t *testing.T, parsed *config.Config, integrations map[string][]notify.Integration, alerts ...*alert.Alert) *dispatch.Route {
	t.Helper()
	labels := alerts[0].Labels
	routes := dispatch.NewRoute(parsed.Route, nil).Match(labels)
	if len(routes) != 1 {
		t.Fatalf("%s has %d routes", labels["alertname"], len(routes))
	}
	ctx := notify.WithGroupKey(t.Context(), "group")
	ctx = notify.WithGroupLabels(ctx, model.LabelSet{"alertname": labels["alertname"]})
	ctx = notify.WithReceiverName(ctx, routes[0].RouteOpts.Receiver)
	ctx = notify.WithNow(ctx, time.Now())
	for _, i := range integrations[routes[0].RouteOpts.Receiver] {
		notified(ctx, t, i, alerts...)
	}
	return routes[0]
}

func notified(ctx context.Context, t *testing.T, i notify.Integration, alerts ...*alert.Alert) {
	t.Helper()
	if result := i.Notify(ctx, alerts...); result.Err() != nil {
		t.Errorf("%s: %v", i.Name(), result.Err())
	}
}

func alertOf(labels, annotations map[string]string, resolved bool) *alert.Alert {
	set := func(pairs map[string]string) model.LabelSet {
		out := model.LabelSet{}
		for name, value := range pairs {
			out[model.LabelName(name)] = model.LabelValue(value)
		}
		return out
	}
	one := model.Alert{Labels: set(labels), Annotations: set(annotations), StartsAt: time.Now().Add(-time.Hour)}
	if resolved {
		one.EndsAt = time.Now().Add(-time.Minute)
	}
	return alert.New(one, time.Now(), false)
}

// Every alert reaches both chats, with its text and its runbook.
func TestAlertsAreSentToDiscordAndSlack(t *testing.T) {
	to := newChat(t)
	parsed, integrations := alertmanager(t, to)
	for _, r := range rules(t) {
		labels := map[string]string{"alertname": r.Alert, "severity": r.Labels["severity"]}
		for _, resolved := range []bool{false, true} {
			route := send(t, parsed, integrations, alertOf(labels, r.Annotations, resolved))
			if route.RouteOpts.Receiver != "crew" {
				t.Errorf("%s goes to %s", r.Alert, route.RouteOpts.Receiver)
			}
			critical := r.Labels["severity"] == "critical"
			if immediate := route.RouteOpts.GroupWait == 0; immediate != critical {
				t.Errorf("%s, %s: sent after %s", r.Alert, r.Labels["severity"], route.RouteOpts.GroupWait)
			}
			sent := to.take()
			for path, calls := range map[string]string{"/discord": "@here", "/slack": "<!here>"} {
				if len(sent[path]) != 1 {
					t.Errorf("%s: %d messages to %s", r.Alert, len(sent[path]), path)
					continue
				}
				var tree any
				if err := json.Unmarshal([]byte(sent[path][0]), &tree); err != nil {
					t.Fatal(err)
				}
				message := texts(tree)
				title := r.Labels["severity"] + ": " + r.Alert
				if resolved {
					title = "resolved: " + r.Alert
				}
				for _, part := range []string{title, r.Annotations["summary"], r.Annotations["description"], runbooks(t) + r.Alert + ".md"} {
					if !strings.Contains(message, part) {
						t.Errorf("%s: the message to %s lacks %q: %s", r.Alert, path, part, message)
					}
				}
				if strings.Contains(message, calls) != (critical && !resolved) {
					t.Errorf("%s, %s, resolved: %t: the message to %s: %s", r.Alert, r.Labels["severity"], resolved, path, message)
				}
			}
		}
	}
}

// texts returns all strings of a value of JSON.
func texts(value any) string {
	switch value := value.(type) {
	case string:
		return value + "\n"
	case []any:
		var all strings.Builder
		for _, part := range value {
			all.WriteString(texts(part))
		}
		return all.String()
	case map[string]any:
		var all strings.Builder
		for _, part := range value {
			all.WriteString(texts(part))
		}
		return all.String()
	default:
		return ""
	}
}

// Alerts of other programs are not sent, and alerts of one name are one message.
func TestRoutesOfNotifications(t *testing.T) {
	to := newChat(t)
	parsed, integrations := alertmanager(t, to)
	send(t, parsed, integrations, alertOf(map[string]string{"alertname": "KubeNodeNotReady", "severity": "critical"}, nil, false))
	if sent := to.take(); len(sent) > 0 {
		t.Errorf("an alert of another program is sent: %v", sent)
	}
	labels := func(name string) map[string]string {
		return map[string]string{"alertname": "BergChallengeUnsolvable", "severity": "warning", "challenge": name}
	}
	send(t, parsed, integrations, alertOf(labels("a"), map[string]string{"summary": "a cannot be solved"}, false), alertOf(labels("b"), map[string]string{"summary": "b cannot be solved"}, false))
	for path, messages := range to.take() {
		if len(messages) != 1 || !strings.Contains(messages[0], "a cannot be solved") || !strings.Contains(messages[0], "b cannot be solved") {
			t.Errorf("%s: %v", path, messages)
		}
	}
}
