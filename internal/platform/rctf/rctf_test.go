package rctf

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/platform/instances"
	"github.com/bergctf/berg-operator/internal/platform/web"
)

func TestEndpoints(t *testing.T) {
	const host = "box.example.org"
	for name, c := range map[string]struct {
		service bergv1.ServiceEndpoint
		kind    string
	}{
		"a public port":         {bergv1.ServiceEndpoint{Protocol: "TCP", URL: "tcp://" + host + ":31337"}, "tcp"},
		"without a URL":         {bergv1.ServiceEndpoint{Protocol: "TCP"}, "tcp"},
		"UDP":                   {bergv1.ServiceEndpoint{Protocol: "UDP", URL: "udp://" + host + ":31337"}, "raw"},
		"HTTP":                  {bergv1.ServiceEndpoint{Protocol: "TCP", URL: "http://" + host}, "http"},
		"HTTPS":                 {bergv1.ServiceEndpoint{Protocol: "TCP", TLS: true, URL: "https://" + host}, "https"},
		"TLS to the container":  {bergv1.ServiceEndpoint{Protocol: "TCP", TLS: true, URL: "tls://" + host + ":443"}, "tcp-ssl"},
		"UDP of a name for TLS": {bergv1.ServiceEndpoint{Protocol: "UDP", TLS: true}, "raw"},
	} {
		c.service.Name, c.service.Hostname, c.service.Port = "web", host, 31337
		want := endpoint{Kind: c.kind, Host: host, Port: 31337, Title: "web", Text: c.service.URL, BypassExpose: true}
		if got := shownEndpoint(c.service); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestDetails(t *testing.T) {
	now := time.Date(2030, 1, 31, 18, 0, 0, 0, time.UTC)
	d := &Endpoint{Clock: clocktesting.NewFakeClock(now)}
	for name, c := range map[string]struct {
		instance instances.Instance
		status   string
		left     int64 // -1: null
	}{
		"without an end": {instances.Instance{State: view.Running}, "running", -1},
		"ends later":     {instances.Instance{State: view.Running, Until: now.Add(90 * time.Second)}, "running", 90_000},
		"should be over": {instances.Instance{State: view.Running, Until: now.Add(-time.Second)}, "running", 0},
		"cannot run":     {instances.Instance{State: view.Failed}, "errored", -1},
		"waits":          {instances.Instance{State: view.Waiting}, "starting", -1},
		"is deleted":     {instances.Instance{State: view.Ending}, "stopping", -1},
	} {
		got := d.shown(c.instance)
		left := int64(-1)
		if got.TimeLeftMilliseconds != nil {
			left = *got.TimeLeftMilliseconds
		}
		if got.Kind != "instancerInstanceDetails" || got.Status != c.status || left != c.left || got.Endpoints != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A team sees why waiting does not help, and how to connect in the author's words.
func TestTexts(t *testing.T) {
	d := &Endpoint{Clock: clocktesting.NewFakeClock(time.Now())}
	address := []bergv1.ServiceEndpoint{{Name: "ssh", Hostname: "a", Port: 22, URL: "tcp://a:22"}}
	for name, c := range map[string]struct {
		instance instances.Instance
		status   string
		titles   string
		text     string
	}{
		"its image is missing": {instances.Instance{State: view.Starting, Stuck: true, NeedsPerson: true, Reason: "No image."}, "errored", "status", "No image."},
		"it is in the queue":   {instances.Instance{State: view.Waiting, Stuck: true, Reason: "In the queue."}, "starting", "status", "In the queue."},
		"it starts":            {instances.Instance{State: view.Starting, Reason: "It starts."}, "starting", "", ""},
		"it runs":              {instances.Instance{State: view.Running, Endpoints: address, Connection: "ssh -p 22 ctf@a"}, "running", "connection ssh", "ssh -p 22 ctf@a"},
	} {
		got := d.shown(c.instance)
		var titles []string
		for _, e := range got.Endpoints {
			titles = append(titles, e.Title)
		}
		if got.Status != c.status || strings.Join(titles, " ") != c.titles || c.text != "" && got.Endpoints[0].Text != c.text {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// rCTF returns the message to the team: it is the sentence for players.
func TestTeamsReadNoTextForOrganisers(t *testing.T) {
	d := &Endpoint{}
	for _, err := range []error{
		instances.Fail(instances.Invalid, "there is no Challenge secret. Those that exist: unreleased"),
		instances.Fail(instances.Exhausted, "SOURCE_MAX_INSTANCES unreleased"),
		&instances.Error{Kind: instances.Refused, Message: "unreleased", Players: "The time is over."},
		errors.New("unreleased"),
	} {
		f, _ := web.NewFailure(err)
		w := httptest.NewRecorder()
		d.Fail(w, f)
		if body := w.Body.String(); strings.Contains(body, "unreleased") || !strings.Contains(body, `"message":"`) {
			t.Errorf("%v: %s", err, body)
		}
	}
}
