package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/test/samples/images/solve"
)

func TestSite(t *testing.T) {
	const flag = "flag{bergführer} €"
	root := t.TempDir()
	flagFile := filepath.Join(root, "flag.txt")
	if err := os.WriteFile(flagFile, []byte(flag+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(newSite("articles"))
	defer site.Close()

	t.Run("front page lists the articles", func(t *testing.T) {
		if status, body := visit(t, site.URL+"/"); status != http.StatusOK || !strings.Contains(body, "/article?name=goats.txt") {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("an article can be read", func(t *testing.T) {
		if status, body := visit(t, site.URL+"/article?name=goats.txt"); status != http.StatusOK || !strings.HasPrefix(body, "GOATS") {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("the plain traversal does not work", func(t *testing.T) {
		status, body := visit(t, site.URL+"/article?name="+strings.Repeat("../", 16)+strings.TrimPrefix(flagFile, "/"))
		if status != http.StatusNotFound || strings.Contains(body, "flag{") {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("it is healthy", func(t *testing.T) {
		if status, body := visit(t, site.URL+"/healthz"); status != http.StatusOK || body != "ok\n" {
			t.Errorf("%d %q", status, body)
		}
	})
	t.Run("it can be solved", func(t *testing.T) {
		got, err := solve.Web(t.Context(), site.Client(), site.URL, flagFile)
		if err != nil || got != flag {
			t.Errorf("flag %q (%v), want %q", got, err, flag)
		}
	})
}

func visit(t *testing.T, address string) (int, string) {
	t.Helper()
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
