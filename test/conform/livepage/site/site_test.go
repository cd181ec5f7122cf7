package site

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/test/conform/livepage/chrome"
)

// A reader finds a page by a word of it, and the site asks no other host.
func TestPagesAreFound(t *testing.T) {
	folder := os.Getenv("DOCS_SITE")
	if folder == "" {
		t.Skip("run it with make test-docs-site")
	}
	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	defer server.Close()
	browser, err := chrome.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer browser.Close()
	page, err := browser.Open(server.URL, "none")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(page.Go(server.URL + "/"))
	title, err := page.Text("document.title")
	must(err)
	if version := os.Getenv("DOCS_SITE_VERSION"); version == "" || !strings.Contains(title, version) {
		t.Errorf("the title %q does not have the version %q", title, version)
	}
	must(page.Until(`document.querySelector("input.md-search__input") !== null`))
	_, err = page.Text(`document.querySelector("input.md-search__input").focus()`)
	must(err)
	must(page.Press("BergRecordsNotWritten"))
	must(page.Until(`document.querySelector(".md-search-result__link") !== null`))
	first, err := page.Text(`document.querySelector(".md-search-result__link").pathname`)
	must(err)
	if first != "/docs/runbooks/BergRecordsNotWritten/" {
		t.Errorf("the first result is %s", first)
	}
	must(page.Go(server.URL + first))
	must(page.Until(`document.querySelector("h1").innerText.startsWith("BergRecordsNotWritten")`))

	// Decisions come after all other pages.
	_, err = page.Text(`document.querySelector("input.md-search__input").focus()`)
	must(err)
	must(page.Press("fenced"))
	const results = `Array.from(document.querySelectorAll("a.md-search-result__link")).map(a => a.pathname)`
	must(page.Until(results + `.some(path => path.startsWith("/docs/adr/"))`))
	sorted, err := page.Text(`String((paths => paths.slice(paths.findIndex(path => path.startsWith("/docs/adr/"))).every(path => path.startsWith("/docs/adr/")))(` + results + `))`)
	must(err)
	if sorted != "true" {
		paths, err := page.Text(results + `.join(" ")`)
		t.Errorf("decisions are not the last results: %s (%v)", paths, err)
	}
	for _, problem := range page.Wrong() {
		t.Error(problem)
	}
}
