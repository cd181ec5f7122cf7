package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

var (
	httpNumbers = []int32{
		80, 81, 88, 3000, 3001, 4000, 4200, 4567, 5000, 5001, 5173, 8000, 8001, 8002, 8008, 8080, 8081, 8082, 8083, 8088, 8090, 8545, 8888, 9000, 9090,
	}
	tlsNumbers = []int32{443, 8443, 4443}

	speaksTCP = regexp.MustCompile(`socat|socaz|xinetd|ynetd|\bncat\b|tcpserver|\bpwn\b|\bnc -l`)
	speaksWeb = regexp.MustCompile(`nginx|httpd|apache|caddy|traefik|\bphp\b|wordpress|gunicorn|uwsgi|uvicorn|flask|fastapi|django|express|tomcat|jetty|` +
		`spring|\bnext\b|npm|yarn|pnpm|\bbun\b|\bdeno\b|\bnode\b|node:|rails|\bpuma\b|streamlit|http\.server|php -s|aspnet|ttyd|server\.port=|waitress|hypercorn|aiohttp|sanic|whoami`)
	// webSource and rawSource match what programs say of the protocol that they speak.
	webSource = regexp.MustCompile(`flask|app\.run\(|fastapi|django|aiohttp|sanic|tornado|bottle|starlette|\bexpress\b|["'](?:koa|fastify|hono|http|https|next|node:http)["']|http\.(?:createserver|listenandserve|handle)|` +
		`\bgin\.|echo\.new|fiber\.new|actix|axum|rocket|warp::|hyper::|http\.server|basehttp|sinatra|webrick|(?:bun|deno)\.serve|gunicorn|uvicorn|uwsgi|hypercorn|php -s|nginx|apache2|springapplication|websocket`)
	rawSource = regexp.MustCompile(`socat|xinetd|ynetd|socketserver|start_server\(|["']net["']|net\.createserver|net\.listen\("tcp|tcplistener|sock_stream|streamrequesthandler|\bhtons\(|tcpserver`)

	isBrowser = regexp.MustCompile(`puppeteer|playwright|selenium|chromium|\bchrome\b|chromedriver|geckodriver|firefox|browserless|xss-?bot|admin-?bot`)
)

func (s *service) text() string { return strings.ToLower(s.named) + "\n" + s.image.text() }

// web reports whether a port speaks HTTP, as far as its service shows it.
func (s *service) web(p port) bool {
	text := s.text()
	switch {
	case p.udp || slices.Contains(databases, p.number) || p.number == 22 || p.number == 2222:
		return false
	case p.http || p.host == 80 || p.host == 443:
		return true
	case p.tcp || p.tls || s.startsJail() || speaksTCP.MatchString(s.image.commandLines()):
		return false
	}
	source := s.image.source()
	if isWeb := webSource.MatchString(source); isWeb || rawSource.MatchString(source) {
		return isWeb
	}
	if speaksTCP.MatchString(text) {
		return false
	}
	for _, line := range s.check.or(s.image.check).test {
		if strings.Contains(line, "http://") {
			return true
		}
	}
	return slices.Contains(httpNumbers, p.number) || speaksWeb.MatchString(text)
}

// portType returns the type of a port for players, and its application protocol.
func (s *service) portType(p port, players bool) (bergv1.PortType, string) {
	protocol := ""
	switch {
	case p.http: // the author says so, also at 8443
		protocol = "http"
	case p.tls && players:
		return bergv1.PublicTLSRoute, ""
	case p.tcp && players && p.number != 22 && p.number != 2222:
	case !p.udp && slices.Contains(tlsNumbers, p.number):
		protocol = "https"
	case !p.udp && (p.number == 22 || p.number == 2222):
		protocol = "ssh"
	case s.web(p):
		protocol = "http"
	}
	switch {
	case !players:
		return bergv1.InternalPort, protocol
	case protocol == "https":
		return bergv1.PublicTLSRoute, protocol
	case protocol == "http":
		return bergv1.PublicHTTPRoute, protocol
	default:
		return bergv1.PublicPort, protocol
	}
}

// namePorts gives ports names whose variables no other port and no variable of an author has.
func (d *draft) namePorts(s *service, made []bergv1.Port) {
	for i := range made {
		name := s.container.Hostname
		if len(made) > 1 {
			name = fmt.Sprintf("%s-%d", name, made[i].Port)
		}
		if made[i].Protocol == "udp" && len(made) > 1 {
			name += "-udp"
		}
		variable := rules.EndpointVariable(name)
		taken := slices.ContainsFunc(d.services, func(other *service) bool {
			_, used := other.container.Environment[variable]
			return used || slices.ContainsFunc(other.container.Ports, func(p bergv1.Port) bool { return rules.EndpointVariable(p.Name) == variable })
		})
		if !taken {
			made[i].Name = name
		}
	}
}
