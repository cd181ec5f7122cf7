// Command gitserver serves git repositories over HTTPS, as GitHub and its like do, with the git of the distribution:
//
//	gitserver --listen ADDR:PORT --cert FILE --key FILE --root DIR --token-file FILE
//
// DIR holds organizations, and these bare repositories. Those of the organization "private" require the token as the
// password of any user. Requests may end with ".git" or not. No client can push.
//
// Files of Git LFS are those of lfs/objects in a repository, where git-lfs itself stores them: the server says where each
// can be downloaded (https://github.com/git-lfs/git-lfs/tree/main/docs/api), which needs the token as the rest does.
package main

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
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
var repository = regexp.MustCompile(`^/([a-z0-9-]+)/([A-Za-z0-9_-][A-Za-z0-9._-]*?)(?:\.git)?(/info/refs|/git-upload-pack|/HEAD|/objects/.*|` + largeFiles + `(?:batch|[0-9a-f]{64}))$`)

// largeFiles begins what is asked for of Git LFS.
const largeFiles = "/info/lfs/objects/"

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
		dir := filepath.Join(root, parts[1], name)
		if _, err := os.Stat(dir); err != nil {
			http.NotFound(w, r)
			return
		}
		if large, ok := strings.CutPrefix(parts[3], largeFiles); ok {
			serveLarge(w, r, dir, large)
			return
		}
		asked := r.Clone(r.Context())
		asked.URL.Path = "/" + parts[1] + "/" + name + parts[3]
		serve.ServeHTTP(w, asked)
	})
}

// largeFile is one of Git LFS, in a request and in the answer to it.
type largeFile struct {
	ID      string          `json:"oid"`
	Size    int64           `json:"size"`
	Actions map[string]link `json:"actions,omitempty"`
	Error   *problem        `json:"error,omitempty"`
}

type link struct {
	Href string `json:"href"`
}

type problem struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// maxBatch is more than a request of git-lfs has, which asks for 100 files at most.
const maxBatch = 1 << 20

// serveLarge answers where files of Git LFS in a repository are, or with one of them.
func serveLarge(w http.ResponseWriter, r *http.Request, dir, asked string) {
	path := func(id string) string { return filepath.Join(dir, "lfs", "objects", id[:2], id[2:4], id) }
	if asked != "batch" {
		http.ServeFile(w, r, path(asked))
		return
	}
	var batch struct {
		Operation string      `json:"operation"`
		Objects   []largeFile `json:"objects"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBatch)).Decode(&batch); err != nil || batch.Operation != "download" {
		http.Error(w, "only downloads are served", http.StatusUnprocessableEntity)
		return
	}
	here := "https://" + r.Host + strings.TrimSuffix(r.URL.Path, "batch")
	for i := range batch.Objects {
		file := &batch.Objects[i]
		if !largeID.MatchString(file.ID) {
			file.Error = &problem{http.StatusUnprocessableEntity, "the oid is no sum"}
		} else if _, err := os.Stat(path(file.ID)); err != nil {
			file.Error = &problem{http.StatusNotFound, "there is no such object"}
		} else {
			file.Actions = map[string]link{"download": {here + file.ID}}
		}
	}
	w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	_ = json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": batch.Objects})
}

var largeID = regexp.MustCompile(`^[0-9a-f]{64}$`)
