package command

import (
	"fmt"
	"net/url"
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// connectCommand returns the command with which a player connects to a service, and whether a browser
// can open it.
func connectCommand(s bergv1.ServiceEndpoint) (command string, browser bool) {
	u, err := url.Parse(s.URL)
	switch {
	case err == nil && (u.Scheme == "http" || u.Scheme == "https"):
		return "curl " + quoted(s.URL), true
	case strings.EqualFold(s.Protocol, "UDP"):
		return fmt.Sprintf("nc -u %s %d", s.Hostname, s.Port), false
	case s.TLS:
		return fmt.Sprintf("ncat --ssl %s %d", s.Hostname, s.Port), false
	case strings.EqualFold(s.AppProtocol, "ssh"):
		return fmt.Sprintf("ssh -p %d %s", s.Port, s.Hostname), false
	default:
		return fmt.Sprintf("nc %s %d", s.Hostname, s.Port), false
	}
}

// quoted quotes text for a shell.
func quoted(text string) string {
	if strings.IndexFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:/@%+=,", r)
	}) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
