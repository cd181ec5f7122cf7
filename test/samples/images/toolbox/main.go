// Command toolbox is an image of only the small commands, with a service that the environment
// describes. Tests use it for containers whose behavior they choose.
//
//	TOOLBOX_HTTP=:8080   answers HTTP: /healthz, / with the host name of the container, and a
//	                     WebSocket at /echo that sends back every message
//	TOOLBOX_TCP=:9000    sends back every line
//	TOOLBOX_UDP=:9000    sends back every datagram
//	TOOLBOX_FLOOD=:9001  sends zeros without end to every client
//	TOOLBOX_TLS=:9443    sends back every line, under a certificate of its own for "toolbox"
//	TOOLBOX_COUNT=:9002  writes the address of every client to its log, and closes
//	TOOLBOX_DIAL=a:9002  connects there every 25 ms, for as long as the process lives: it ignores SIGTERM
//	TOOLBOX_NOISE=1000   first writes so many bytes to its log
//	TOOLBOX_SAY=FLAG     then the variable of this name: plain, in hexadecimal digits, for a URL, in
//	                     base64, and thousands of times in one line
//	TOOLBOX_EXIT=3       exits immediately with this exit code, as a broken container does
//
// Without any of them it waits for SIGTERM.
package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"github.com/bergctf/berg-operator/test/samples/images/internal/toolbox"
)

// maxConnections bounds the connections that are echoed at a time.
const maxConnections = 256

func main() { toolbox.Main(serve) }

func serve(ctx context.Context) error {
	if err := talk(os.Stdout, os.Getenv("TOOLBOX_NOISE"), os.Getenv(os.Getenv("TOOLBOX_SAY"))); err != nil {
		return err
	}
	if text := os.Getenv("TOOLBOX_EXIT"); text != "" {
		code, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("TOOLBOX_EXIT: %w", err)
		}
		// Where all else is said: between two streams a log keeps no order.
		fmt.Fprintln(os.Stdout, "ending with exit code", code, "as TOOLBOX_EXIT asks")
		os.Exit(code)
	}

	services := []func(context.Context) error{func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}}
	if address := os.Getenv("TOOLBOX_HTTP"); address != "" {
		services = append(services, func(ctx context.Context) error {
			return toolbox.ServeHTTP(ctx, http.HandlerFunc(answer), address)
		})
	}
	if address := os.Getenv("TOOLBOX_TCP"); address != "" {
		services = append(services, func(ctx context.Context) error {
			return toolbox.ServeTCP(ctx, address, maxConnections, echo)
		})
	}
	if address := os.Getenv("TOOLBOX_TLS"); address != "" {
		certificate, err := ownCertificate()
		if err != nil {
			return err
		}
		config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		services = append(services, func(ctx context.Context) error {
			return toolbox.ServeTCP(ctx, address, maxConnections, func(ctx context.Context, connection net.Conn) {
				echo(ctx, tls.Server(connection, config))
			})
		})
	}
	if address := os.Getenv("TOOLBOX_UDP"); address != "" {
		services = append(services, func(ctx context.Context) error { return echoDatagrams(ctx, address) })
	}
	if address := os.Getenv("TOOLBOX_FLOOD"); address != "" {
		services = append(services, func(ctx context.Context) error {
			return toolbox.ServeTCP(ctx, address, maxConnections, flood)
		})
	}
	if address := os.Getenv("TOOLBOX_COUNT"); address != "" {
		services = append(services, func(ctx context.Context) error {
			return toolbox.ServeTCP(ctx, address, maxConnections, func(_ context.Context, connection net.Conn) {
				fmt.Fprintln(os.Stdout, "client", connection.RemoteAddr())
				connection.Close()
			})
		})
	}
	if address := os.Getenv("TOOLBOX_DIAL"); address != "" {
		services = append(services, func(context.Context) error { return dial(address) })
	}
	return toolbox.Together(ctx, services...)
}

func answer(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		fmt.Fprintln(w, "ok")
		return
	case "/echo":
		echoMessages(w, r)
		return
	}
	name, err := os.Hostname()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintf(w, "%s answers %s %s for %s\n", name, r.Method, r.URL.Path, r.Host)
}

// echoMessages is a WebSocket (RFC 6455). A client that is none was answered.
func echoMessages(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{}
	connection, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer connection.Close()
	for {
		kind, message, err := connection.ReadMessage()
		if err != nil {
			return
		}
		if err := connection.WriteMessage(kind, message); err != nil {
			return
		}
	}
}

// ownCertificate returns a self-signed certificate.
func ownCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "toolbox"},
		DNSNames:     []string{"toolbox"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, err
}

func flood(ctx context.Context, connection net.Conn) {
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	zeros := make([]byte, 1<<16)
	for {
		if _, err := connection.Write(zeros); err != nil {
			return
		}
	}
}

// dial connects again and again. Each attempt is one of its own: one that a policy drops does not delay the next.
func dial(address string) error {
	const every, limit = 25 * time.Millisecond, time.Second
	for range time.Tick(every) {
		go func() {
			if connection, err := net.DialTimeout("tcp", address, limit); err == nil {
				connection.Close()
			}
		}()
	}
	return nil
}

func echo(ctx context.Context, connection net.Conn) {
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	// A client that goes away is no fault of the echo.
	_, _ = io.Copy(connection, connection)
}

func echoDatagrams(ctx context.Context, address string) error {
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	defer stop()
	datagram := make([]byte, 1<<16)
	for {
		n, sender, err := socket.ReadFrom(datagram)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		// A sender that is gone already (its port is closed) must not end the service.
		_, _ = socket.WriteTo(datagram[:n], sender)
	}
}

// talk writes noise and a secret to a log, as careless challenges do.
func talk(to io.Writer, noise, secret string) error {
	if noise != "" {
		left, err := strconv.ParseInt(noise, 10, 64)
		if err != nil {
			return fmt.Errorf("TOOLBOX_NOISE: %w", err)
		}
		chunk := bytes.Repeat([]byte(strings.Repeat(".", 127)+"\n"), 512)
		for ; left > 0; left -= int64(len(chunk)) {
			if _, err := to.Write(chunk[:min(left, int64(len(chunk)))]); err != nil {
				return err
			}
		}
	}
	if secret == "" {
		return nil
	}
	const often = 4000
	_, err := fmt.Fprintf(to, "plain %s\nhex %x\nurl %s\nbase64 %s\n%s\nsaid\n", secret, secret, url.QueryEscape(secret),
		base64.StdEncoding.EncodeToString([]byte("the flag is "+secret)), strings.Repeat(secret, often))
	return err
}
