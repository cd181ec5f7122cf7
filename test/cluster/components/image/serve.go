package main

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// shutdownTimeout bounds how long a pull that is under way may hold up the end of the process.
const shutdownTimeout = 5 * time.Second

func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var (
		flags  = newFlagSet("serve")
		listen = flags.String("listen", "", "")
		cert   = flags.String("cert", "", "")
		key    = flags.String("key", "", "")
		dir    = flags.String("dir", "", "")
		login  = flags.String("login", "", "")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := requireFlags(flags, "listen", "cert", "key", "dir"); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}

	certificate, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return fmt.Errorf("load the certificate: %w", err)
	}
	logger := log.New(stderr, "", log.LstdFlags)
	handler, err := newRegistry(*dir, logger)
	if err != nil {
		return err
	}
	if *login != "" {
		who, err := os.ReadFile(*login)
		if err != nil {
			return err
		}
		if handler, err = onlyFor(string(who), handler); err != nil {
			return fmt.Errorf("--login %s: %w", *login, err)
		}
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "serving https://%s from %s\n", listener.Addr(), *dir)
	return serveUntilDone(ctx, listener, certificate, handler, logger)
}

func serveUntilDone(ctx context.Context, listener net.Listener, certificate tls.Certificate, handler http.Handler, logger *log.Logger) error {
	server := &http.Server{
		Handler:           handler,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          logger,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// The context is done already: the shutdown needs one that is not.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("shut down: %w", err)
	}
	return server.Close()
}

// onlyFor admits only who, which is "user:password", for pulls and pushes.
func onlyFor(who string, next http.Handler) (http.Handler, error) {
	user, password, found := strings.Cut(strings.TrimSpace(who), ":")
	if !found || user == "" || password == "" {
		return nil, errors.New("want USER:PASSWORD in the file")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, p, _ := r.BasicAuth()
		if subtle.ConstantTimeCompare([]byte(u+":"+p), []byte(user+":"+password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintln(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// newRegistry returns a registry that keeps blobs below dir, and manifests in memory: clients push again after a restart.
func newRegistry(dir string, logger *log.Logger) (http.Handler, error) {
	blobs := filepath.Join(dir, "blobs")
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		return nil, fmt.Errorf("make the registry's folder: %w", err)
	}
	return registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)), registry.Logger(logger)), nil
}
