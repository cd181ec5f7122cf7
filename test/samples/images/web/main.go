// Command web is the sample web challenge: a village newspaper that serves its articles from a
// folder and believes that removing "../" once keeps readers inside it. The flag is /flag.txt.
package main

import (
	"context"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/bergctf/berg-operator/test/samples/images/internal/toolbox"
)

const (
	port          = "8080"
	articleFolder = "/srv/articles"
)

func main() {
	toolbox.Main(func(ctx context.Context) error {
		return toolbox.ServeHTTP(ctx, newSite(articleFolder), toolbox.Address(port))
	})
}

// newSite returns the newspaper with the articles of folder.
func newSite(folder string) http.Handler {
	site := http.NewServeMux()
	site.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	site.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { listArticles(w, folder) })
	site.HandleFunc("GET /article", func(w http.ResponseWriter, r *http.Request) { showArticle(w, r, folder) })
	return site
}

var frontPage = template.Must(template.New("front").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>The Mountain Herald</title>
<style>
body { max-width: 40em; margin: 2em auto; padding: 0 1em; font: 18px/1.6 serif; color: #222; background: #fdfaf3 }
h1 { font-size: 46px; text-align: center; margin: 0; border-bottom: 4px double }
p { text-align: center; font-style: italic; margin: .3em 0 1.5em }
a { color: #8a1c1c }
</style>
<h1>The Mountain Herald</h1>
<p>All that happens above the clouds</p>
<h2>From the archive</h2>
<ul>{{range .}}<li><a href="/article?name={{.}}">{{.}}</a></li>{{end}}</ul>
</html>
`))

func listArticles(w http.ResponseWriter, folder string) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		http.Error(w, "the archive is closed today", http.StatusInternalServerError)
		return
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	// The reader hanging up half-way is no failure of the newspaper.
	_ = frontPage.Execute(w, names)
}

func showArticle(w http.ResponseWriter, r *http.Request, folder string) {
	// This is the bug to find: what is left after one pass may be "../" again.
	name := strings.ReplaceAll(r.URL.Query().Get("name"), "../", "")
	text, err := os.ReadFile(filepath.Join(folder, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, "no such article", http.StatusNotFound)
	case err != nil:
		http.Error(w, "this article cannot be shown", http.StatusForbidden)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write(text)
	}
}
