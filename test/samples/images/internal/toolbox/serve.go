package toolbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Address returns what a service listens on: every address of the container, or only LISTEN_HOST if
// that is set, as it is where a test runs several programs.
func Address(port string) string { return net.JoinHostPort(os.Getenv("LISTEN_HOST"), port) }

// ServeHTTP answers on every address until the context is done.
func ServeHTTP(ctx context.Context, handler http.Handler, addresses ...string) error {
	services := make([]func(context.Context) error, len(addresses))
	for i, address := range addresses {
		services[i] = func(ctx context.Context) error {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
			stop := context.AfterFunc(ctx, func() { server.Close() })
			defer stop()
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		}
	}
	return Together(ctx, services...)
}

// ServeTCP accepts connections until the context is done and hands each to handle in a goroutine of
// its own; it closes the connection afterwards. At most limit connections are handled at a time,
// further ones wait.
func ServeTCP(ctx context.Context, address string, limit int, handle func(context.Context, net.Conn)) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	slots := make(chan struct{}, limit)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		connection, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go func() {
			defer func() { <-slots }()
			defer connection.Close()
			handle(ctx, connection)
		}()
	}
}

// Together runs services side by side until all are done. The first that fails stops the others.
func Together(ctx context.Context, services ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	failures := make([]error, len(services))
	var running sync.WaitGroup
	for i, service := range services {
		running.Go(func() {
			if failures[i] = service(ctx); failures[i] != nil {
				cancel(failures[i])
			}
		})
	}
	running.Wait()
	return errors.Join(failures...)
}
