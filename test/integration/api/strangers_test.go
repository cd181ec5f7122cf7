package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"k8s.io/client-go/rest"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/launch"
)

// listening is an API behind its own port, as berg-api serves it, with its log.
type listening struct {
	ctfd
	address string
	log     *gbytes.Buffer
}

// listen serves an API at its own port until the spec ends.
func listen(ctx context.Context, ns string, env map[string]string) listening {
	GinkgoHelper()
	grant(ctx, ns)
	l := listening{log: gbytes.NewBuffer()}
	addresses := map[string]string{}
	for name, value := range env {
		addresses[name] = value
	}
	for _, name := range []string{"BIND_ADDRESS", "METRICS_BIND_ADDRESS"} {
		address, err := launch.FreeAddress()
		Expect(err).NotTo(HaveOccurred())
		addresses[name] = address
	}
	l.address = addresses["BIND_ADDRESS"]
	l.ctfd = ctfd{"http://" + l.address}
	s := (&api{namespace: ns}).server(addresses, &atomic.Bool{}, io.MultiWriter(l.log, GinkgoWriter))
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(ended).Should(Receive(BeNil()))
	})
	Eventually(s.Ready).WithContext(ctx).Should(BeTrue())
	return l
}

// begins opens a connection and sends the begin of a request, until the spec ends.
func (l listening) begins(request string) net.Conn {
	GinkgoHelper()
	conn, err := net.DialTimeout("tcp", l.address, time.Minute)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(conn.Close)
	_, err = io.WriteString(conn, request)
	if !errors.Is(err, io.EOF) && err != nil { // it may be closed already
		GinkgoWriter.Println(err)
	}
	return conn
}

// open reports whether a connection is still open, without an answer.
func open(conn net.Conn) bool {
	GinkgoHelper()
	Expect(conn.SetReadDeadline(time.Now().Add(time.Millisecond))).To(Succeed())
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

var _ = Describe("Strangers", func() {
	// A quarter of them may be without a token.
	few := map[string]string{"MAX_CONNECTIONS": "128"}
	const untrusted = 32

	DescribeTable("whose bodies do not come do not take the port away", func(ctx context.Context, request string) {
		l := listen(ctx, bergtest.Namespace(ctx), few)
		var all []net.Conn
		for n := range 20 * untrusted {
			all = append(all, l.begins(request))
			if n%untrusted == 0 {
				Expect(l.call(ctx, "GET", "/healthcheck", "").Status).To(Equal(200))
			}
		}
		Expect(l.call(ctx, "GET", "/healthcheck", "").Status).To(Equal(200))
		left := func() (n int) {
			for _, conn := range all {
				if open(conn) {
					n++
				}
			}
			return n
		}
		Eventually(left).Should(BeNumerically("<=", untrusted), "connections without a token are open")
		Eventually(left).WithTimeout(30 * time.Second).Should(BeZero())
		Eventually(l.log).Should(gbytes.Say("connections were refused.*address=127.0.0.1/32"))
	},
		Entry("without a token", "POST /api/v1/instance HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"),
		Entry("with a token to come in the body", "PUT /v1/instances/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"),
		Entry("with headers to come", "GET /healthcheck HTTP/1.1\r\n"),
		Entry("without a word", ""),
	)

	It("are answered once, and leave", func(ctx context.Context) {
		l := listen(ctx, bergtest.Namespace(ctx), few)
		conn := l.begins("POST /api/v1/instance HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		Expect(err).NotTo(HaveOccurred())
		defer answer.Body.Close()
		Expect(answer.StatusCode).To(Equal(401))
		Expect(answer.Close).To(BeTrue())
		Eventually(func() bool { return open(conn) }).Should(BeFalse())
	})

	It("with wrong tokens have a rate of their own, and learn nothing", func(ctx context.Context) {
		l := listen(ctx, bergtest.Namespace(ctx), map[string]string{"RATE": "5"})
		guess := func(token string) answer {
			return call(ctx, "GET", l.url+"/healthcheck", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
		}
		unknown, elsewhere := guess("token-that-is-unknown"), guess(tokensOf["rctf"])
		Expect(unknown.Status).To(Equal(401))
		Expect(elsewhere.Status).To(Equal(401))
		Expect(elsewhere.Body).To(Equal(unknown.Body), "the answer says that the token is right elsewhere")
		Eventually(l.log).Should(gbytes.Say("for another endpoint.*key=rctf"))
		var limited answer
		for n := range 300 {
			if limited = guess(fmt.Sprint("token-that-is-unknown-", n)); limited.Status == 429 {
				break
			}
		}
		Expect(limited.Status).To(Equal(429))
		Expect(limited.Header.Get("Retry-After")).NotTo(BeEmpty())
		Expect(l.call(ctx, "GET", "/healthcheck", "").Status).To(Equal(200), "a right token waits for wrong ones")
	})

	It("cost a platform nothing whose request comes slowly, and in pieces", func(ctx context.Context) {
		l := listen(ctx, bergtest.Namespace(ctx), few)
		conn := l.begins("GET /healthcheck HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + tokensOf["chall-manager"] + "\r\n\r\n")
		lines := bufio.NewReader(conn)
		for range 3 { // the connection stays, beyond any number of strangers
			answer, err := http.ReadResponse(lines, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(answer.StatusCode).To(Equal(200))
			_, err = io.Copy(io.Discard, answer.Body)
			Expect(err).NotTo(HaveOccurred())
			for range 2 * untrusted {
				l.begins("")
			}
			_, err = io.WriteString(conn, "GET /healthcheck HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+tokensOf["chall-manager"]+"\r\n\r\n")
			Expect(err).NotTo(HaveOccurred())
		}
	})
})

var _ = Describe("Flags", Serial, func() {
	DescribeTable("are not in the log of the API, where admission quotes them", func(ctx context.Context, action string) {
		const secret = "only_for_players"
		ns := bergtest.Namespace(ctx)
		bergtest.Challenge(ctx, ns, "guestbook", `flag: "flag{`+secret+`}"
containers: [{hostname: web, image: "example.com/web:1", dynamicFlag: {env: {name: FLAG}}}]`)
		l := listen(ctx, ns, nil)
		Expect(l.register(ctx, "1", "guestbook", `"600s"`).Status).To(Equal(200))
		Expect(l.boot(ctx, "1", "7").Status).To(Equal(200))
		apiserver.QuoteFlags(ctx, ns, action)
		logged := &apiserver.Overheard{}
		rest.SetDefaultWarningHandler(logged)
		DeferCleanup(func() { rest.SetDefaultWarningHandler(rest.WarningLogger{}) })
		answers := []answer{
			l.boot(ctx, "1", "8"), l.call(ctx, "PATCH", "/api/v1/instance/1/7", ""), l.call(ctx, "DELETE", "/api/v1/instance/1/7", ""),
		}
		for _, got := range answers {
			if action == "Deny" {
				Expect(got.Status).To(BeNumerically(">=", 400), got.Body)
				Expect(got.Body).NotTo(ContainSubstring(secret))
			} else {
				Expect(got.Status).To(Equal(200), got.Body)
			}
		}
		text := string(l.log.Contents())
		if action == "Deny" {
			Expect(strings.Count(text, apiserver.Quotation+"<flag>")).To(Equal(len(answers)), text)
		}
		Expect(text).NotTo(ContainSubstring(secret))
		Expect(logged.String()).NotTo(ContainSubstring(secret))
	},
		Entry("when it refuses", "Deny"),
		Entry("when it warns", "Warn"),
	)
})
