package main

import (
	"context"
	"fmt"
	"html"
	"net/http"
)

// maxReview is the longest review, in bytes.
const maxReview = 2000

// lists is what the shop keeps in its database.
type lists interface {
	add(ctx context.Context, list, text string) error
	all(ctx context.Context, list string) ([]string, error)
}

// newShop returns the shop's pages.
func newShop(database lists) http.Handler {
	shop := &shop{database: database}
	pages := http.NewServeMux()
	pages.HandleFunc("GET /{$}", shop.front)
	pages.HandleFunc("GET /reviews", shop.showReviews)
	pages.HandleFunc("POST /reviews", shop.addReview)
	pages.HandleFunc("GET /visitors", shop.showVisitors)
	pages.HandleFunc("GET /counter.gif", shop.countVisitor)
	pages.HandleFunc("GET /healthz", shop.health)
	return pages
}

type shop struct {
	database lists
}

func (s *shop) front(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, `<!doctype html>
<title>Cheese shop</title>
<h1>Cheese shop</h1>
<p><a href="/reviews">Reviews</a> (a moderator reads them all) <a href="/visitors">Our visitors</a></p>
<form method="post" action="/reviews"><textarea name="text"></textarea><button>Send</button></form>
<img src="/counter.gif" alt="">
`)
}

func (s *shop) showReviews(w http.ResponseWriter, r *http.Request) {
	reviews, err := s.database.all(r.Context(), "reviews")
	if err != nil {
		unavailable(w)
		return
	}
	fmt.Fprintln(w, "<!doctype html><title>Reviews</title>")
	for _, review := range reviews {
		// The first mistake to find: this should have been escaped.
		fmt.Fprintf(w, "<p>%s</p>\n", review)
	}
}

func (s *shop) addReview(w http.ResponseWriter, r *http.Request) {
	text := r.FormValue("text")
	if text == "" || len(text) > maxReview {
		http.Error(w, fmt.Sprintf("a review has 1 to %d characters", maxReview), http.StatusBadRequest)
		return
	}
	if err := s.database.add(r.Context(), "reviews", text); err != nil {
		unavailable(w)
		return
	}
	http.Redirect(w, r, "/reviews", http.StatusSeeOther)
}

// countVisitor notes the address in "Referer". The second mistake to find: it may hold secrets.
func (s *shop) countVisitor(w http.ResponseWriter, r *http.Request) {
	if from := r.Referer(); from != "" {
		if err := s.database.add(r.Context(), "visitors", from); err != nil {
			unavailable(w)
			return
		}
	}
	w.Header().Set("Content-Type", "image/gif")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte("GIF89a\x01\x00\x01\x00\x00\x00\x00;"))
}

func (s *shop) showVisitors(w http.ResponseWriter, r *http.Request) {
	visitors, err := s.database.all(r.Context(), "visitors")
	if err != nil {
		unavailable(w)
		return
	}
	fmt.Fprintln(w, "<!doctype html><title>Where our visitors come from</title>")
	for _, visitor := range visitors {
		fmt.Fprintf(w, "<p>%s</p>\n", html.EscapeString(visitor))
	}
}

// health is only good when the database answers: without it no page of the shop works.
func (s *shop) health(w http.ResponseWriter, r *http.Request) {
	if _, err := s.database.all(r.Context(), "health"); err != nil {
		unavailable(w)
		return
	}
	fmt.Fprintln(w, "ok")
}

func unavailable(w http.ResponseWriter) {
	http.Error(w, "the shop's database does not answer", http.StatusServiceUnavailable)
}
