package rules

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// connectionPlaceholder finds {host}, {port} and {url}, also after the name of a port and a dot, in spec.connectionInfo.
// Other braces belong to the text.
var connectionPlaceholder = regexp.MustCompile(`\{(?:([-A-Za-z0-9_.:]+)\.)?(host|port|url)\}`)

// unknownPlaceholder finds words in braces that look like a placeholder, and are none. After a letter they are a flag.
var unknownPlaceholder = regexp.MustCompile(`(?:^|[^A-Za-z0-9_$])(\{[A-Za-z][-A-Za-z0-9_.]*\})`)

// FillConnectionInfo replaces the placeholders of spec.connectionInfo by the addresses of an instance. It returns "" while an
// address is not known, so that no player sees a placeholder.
func FillConnectionInfo(text string, services []bergv1.ServiceEndpoint) string {
	complete := true
	filled := connectionPlaceholder.ReplaceAllStringFunc(text, func(placeholder string) string {
		part := connectionPlaceholder.FindStringSubmatch(placeholder)
		for _, s := range services {
			if part[1] != "" && part[1] != s.Name {
				continue
			}
			switch part[2] {
			case "host":
				return s.Hostname
			case "port":
				return strconv.Itoa(int(s.Port))
			default:
				return s.URL
			}
		}
		complete = false
		return placeholder
	})
	if !complete {
		return ""
	}
	return filled
}

// connectionInfoProblems names placeholders that no port of the Challenge fills, and a flag in the text, which every player reads.
func connectionInfoProblems(c *bergv1.Challenge) (all []string) {
	text := c.Spec.ConnectionInfo
	names := map[string]bool{}
	for _, container := range c.Spec.Containers {
		for _, p := range container.Ports {
			if p.Public() {
				names[""], names[EndpointName(container, p)] = true, true
			}
		}
	}
	for _, part := range connectionPlaceholder.FindAllStringSubmatch(text, -1) {
		switch {
		case names[part[1]]:
		case part[1] == "":
			all = append(all, fmt.Sprintf("has %s, but no port that players can reach: players see the text without addresses, or nothing", part[0]))
		default:
			all = append(all, fmt.Sprintf("has %s, but there is no port of that name that players can reach: players see the addresses instead of the text", part[0]))
		}
	}
	rest := connectionPlaceholder.ReplaceAllString(text, "")
	for _, word := range unknownPlaceholder.FindAllStringSubmatch(rest, -1) {
		all = append(all, fmt.Sprintf("shows %s as it is: the placeholders are {host}, {port} and {url}, or {NAME.host} with the name of a port", word[1]))
	}
	if c.Spec.Flag != "" && strings.Contains(text, c.Spec.Flag) {
		all = append(all, "contains the flag, which every player would read: remove it")
	}
	return all
}

// EndpointName is the name of a port in status.services.
func EndpointName(c bergv1.Container, p bergv1.Port) string {
	if p.Name != "" {
		return p.Name
	}
	return c.Hostname + ":" + strconv.Itoa(int(p.Port))
}
