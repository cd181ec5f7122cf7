package strangers

import "strings"

// Confusion is what a player sends over a connection of his own instance, to reach that of another player.
type Confusion struct {
	Sent string
	// Served are the requests that his own instance may get, as host and path with the body.
	Served []string
}

// Confusions of a host with another one, by their names.
func Confusions(own, other string) map[string]Confusion {
	const second = "GET /b HTTP/1.1\r\nHost: {other}\r\n\r\n"
	all := map[string]Confusion{
		"length and chunks":         {"POST /a HTTP/1.1\r\nHost: {own}\r\nContent-Length: 49\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second, []string{"{own}/a="}},
		"two lengths":               {"POST /a HTTP/1.1\r\nHost: {own}\r\nContent-Length: 3\r\nContent-Length: 40\r\n\r\nabc" + second, nil},
		"an odd coding":             {"POST /a HTTP/1.1\r\nHost: {own}\r\nTransfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\nabc", nil},
		"a coding in a second line": {"POST /a HTTP/1.1\r\nHost: {own}\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", []string{"{own}/a="}},
		"a space before the colon":  {"POST /a HTTP/1.1\r\nHost: {own}\r\nContent-Length : 40\r\n\r\n" + second, nil},
		"two hosts":                 {"GET /a HTTP/1.1\r\nHost: {own}\r\nHost: {other}\r\n\r\n", nil},
		"a folded host":             {"GET /a HTTP/1.1\r\nHost: {own}\r\n {other}\r\n\r\n", nil},
		"no host":                   {"GET /a HTTP/1.1\r\n\r\n", nil},
		"absolute form":             {"GET http://{other}/a HTTP/1.1\r\nHost: {own}\r\n\r\n", nil},
		"absolute form, itself":     {"GET http://{own}/a HTTP/1.1\r\nHost: {other}\r\n\r\n", []string{"{own}/a="}},
		"another host":              {"GET /a HTTP/1.1\r\nHost: {other}\r\n\r\n", nil},
		"another host afterwards":   {"GET /a HTTP/1.1\r\nHost: {own}\r\n\r\n" + second, []string{"{own}/a="}},
		"a user in the host":        {"GET /a HTTP/1.1\r\nHost: {own}@{other}\r\n\r\n", nil},
		"a line end in the chunk":   {"POST /a HTTP/1.1\r\nHost: {own}\r\nTransfer-Encoding: chunked\r\n\r\n1;\nx\r\na\r\n0\r\n\r\n", []string{"{own}/a="}},
		"CONNECT":                   {"CONNECT {other}:443 HTTP/1.1\r\nHost: {other}:443\r\n\r\n", nil},
		"an upgrade":                {"GET /a HTTP/1.1\r\nHost: {own}\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n" + second, []string{"{own}/a="}},
		"a bare line end":           {"GET /a HTTP/1.1\nHost: {own}\n\n", []string{"{own}/a="}},
		"capitals, dot and port":    {"GET /a HTTP/1.1\r\nHost: {OWN}.:443\r\n\r\n", []string{"{OWN}.:443/a="}},
	}
	named := strings.NewReplacer("{own}", own, "{other}", other, "{OWN}", strings.ToUpper(own))
	for name, c := range all {
		served := make([]string, 0, len(c.Served))
		for _, request := range c.Served {
			served = append(served, named.Replace(request))
		}
		all[name] = Confusion{named.Replace(c.Sent), served}
	}
	return all
}
