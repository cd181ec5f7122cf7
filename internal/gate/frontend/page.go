package frontend

import (
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/gate/routing"
)

// page is what a player reads when no pod answers.
type page struct {
	status      int
	Title, Text string
	// Reload in seconds. 0: reloading does not help.
	Reload int
}

var (
	pageUnknown    = page{http.StatusNotFound, "Nothing is here", "This instance has ended, or there never was one. Start it again where you found this address.", 0}
	pageStarting   = page{http.StatusServiceUnavailable, "The instance is starting", "This page loads again until it is ready.", 2}
	pageSilent     = page{http.StatusServiceUnavailable, "The instance does not answer", "Its program accepts no connection at the moment. This page loads again.", 5}
	pageIncomplete = page{http.StatusInternalServerError, "The instance is incomplete", "Its address leads nowhere at the moment. This page loads again.", 5}
	pageBroken     = page{http.StatusBadGateway, "The instance ended the connection", "Its program did not complete the answer. Try again.", 0}
)

// explained returns the page that says why the instance of a request does not run, as far as its operator has written that into the
// route. Else it returns the other page.
func explained(rule *routing.Rule, other page) page {
	if rule == nil || !view.Explain(rule.Cause).NeedsPerson {
		return other
	}
	return page{http.StatusServiceUnavailable, "The instance does not run", view.Explain(rule.Cause).Players + " This page loads again.", 10}
}

var pageTemplate = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
{{- if .Reload}}<meta http-equiv="refresh" content="{{.Reload}}">{{end}}
<title>{{.Title}}</title>
<style>:root{color-scheme:light dark}body{font:1.1rem system-ui,sans-serif;max-width:34rem;margin:20vh auto;padding:0 1rem}</style>
</head><body><main><h1>{{.Title}}</h1><p role="status">{{.Text}}</p></main></body></html>
`))

// writePage answers a browser with a page, and a program with a line.
func writePage(w http.ResponseWriter, r *http.Request, p page) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	if p.Reload > 0 {
		header.Set("Retry-After", strconv.Itoa(p.Reload))
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Error(w, p.Title+". "+p.Text, p.status)
		return
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.WriteHeader(p.status)
	_ = pageTemplate.Execute(w, p)
}
