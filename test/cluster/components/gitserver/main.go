// Command gitserver serves git repositories over HTTPS, as GitHub and its like do, with the git of the distribution:
//
//	gitserver --listen ADDR:PORT --cert FILE --key FILE --root DIR --token-file FILE
//
// DIR holds organizations, and these bare repositories. Those of the organization "private" require the token as the
// password of any user. Requests may end with ".git" or not. No client can push.
package main

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "gitserver: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("gitserver", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:443", "address and port")
	certificate := flags.String("cert", "", "file with the certificate")
	key := flags.String("key", "", "file with its key")
	root := flags.String("root", "", "directory of organizations")
	tokenFile := flags.String("token-file", "", "file with the token of private repositories")
	backend := flags.String("backend", "/usr/lib/git-core/git-http-backend", "git's program for this")
	if err := flags.Parse(args); err != nil {
		return err
	}
	token, err := os.ReadFile(*tokenFile)
	if err != nil {
		return err
	}
	if token = bytes.TrimSpace(token); len(token) == 0 {
		return fmt.Errorf("%s is empty: every client could read the private repositories", *tokenFile)
	}
	server := &http.Server{Addr: *listen, Handler: repositories(*root, *backend, token), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.ListenAndServeTLS(*certificate, *key); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// repository is organization and name, and what of it is asked for.
var repository = regexp.MustCompile(`^/([a-z0-9-]+)/([A-Za-z0-9_-][A-Za-z0-9._-]*?)(?:\.git)?(/info/refs|/git-upload-pack|/HEAD|/objects/.*)$`)

func repositories(root, backend string, token []byte) http.Handler {
	serve := &cgi.Handler{
		Path: backend,
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := repository.FindStringSubmatch(r.URL.Path)
		if parts == nil {
			http.NotFound(w, r)
			return
		}
		if parts[1] == "private" {
			if _, password, _ := r.BasicAuth(); subtle.ConstantTimeCompare([]byte(password), token) != 1 {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				http.Error(w, "this repository is private", http.StatusUnauthorized)
				return
			}
		}
		name := parts[2] + ".git"
		if _, err := os.Stat(filepath.Join(root, parts[1], name)); err != nil {
			http.NotFound(w, r)
			return
		}
		asked := r.Clone(r.Context())
		asked.URL.Path = "/" + parts[1] + "/" + name + parts[3]
		serve.ServeHTTP(w, asked)
	})
}
