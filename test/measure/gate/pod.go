package main

import (
	"context"
	"net"
	"net/http"
	"strconv"
)

// serve is a pod: it answers with as many bytes as n says.
func serve(ctx context.Context, address string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	chunk := make([]byte, 64<<10)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		if n == 0 {
			_, _ = w.Write([]byte("served"))
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(n))
		for n > 0 {
			written, err := w.Write(chunk[:min(n, len(chunk))])
			if err != nil {
				return
			}
			n -= written
		}
	})}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return server.Serve(listener)
}
