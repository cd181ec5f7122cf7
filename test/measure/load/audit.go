package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/bergctf/berg-operator/test/lib/installed"
)

// auditLog is the API server's own record of every request.
type auditLog struct{ path string }

// end is where the log ends now.
func (a auditLog) end() (int64, error) {
	info, err := os.Stat(a.path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// find returns where the line ends that holds a text, looking from an offset on.
func (a auditLog) find(from int64, text string) (int64, error) {
	f, err := os.Open(a.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	rest, err := io.ReadAll(io.NewSectionReader(f, from, 1<<40))
	if err != nil {
		return 0, err
	}
	at := bytes.Index(rest, []byte(text))
	if at < 0 {
		return 0, errors.New("the audit log does not show a request")
	}
	end := bytes.IndexByte(rest[at:], '\n')
	if end < 0 {
		return 0, errors.New("the audit log is being written")
	}
	return from + int64(at+end) + 1, nil
}

// request is what the audit log tells about one.
type request struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	UserAgent string `json:"userAgent"`
	Object    struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
}

const operatorUser = "system:serviceaccount:" + installed.Namespace + ":" + installed.Account

// count returns the requests of the operator, or of the bare client, between two
// ends of the log, by verb and resource, such as "patch challengeinstances/status".
func (a auditLog) count(begin, end int64, bare bool) (map[string]int, error) {
	f, err := os.Open(a.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if now, err := a.end(); err != nil || now < end || end < begin {
		return nil, errors.Join(err, fmt.Errorf("%s was begun again: requests cannot be counted", a.path))
	}
	return countRequests(io.NewSectionReader(f, begin, end-begin), bare)
}

func countRequests(log io.Reader, bare bool) (map[string]int, error) {
	counts := map[string]int{}
	lines := bufio.NewReaderSize(log, 1<<20)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return counts, nil // a last line without an end is being written
		}
		if err != nil {
			return nil, err
		}
		if !bytes.Contains(text, []byte(operatorUser)) {
			continue
		}
		var r request
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, err
		}
		if r.User.Username != operatorUser || strings.HasPrefix(r.UserAgent, bareAgent) != bare || r.Object.Resource == "" {
			continue
		}
		// Others are the beginnings of requests whose end has a line of its own.
		if r.Stage != "ResponseComplete" {
			continue
		}
		name := r.Verb + " " + r.Object.Resource
		if r.Object.Subresource != "" {
			name += "/" + r.Object.Subresource
		}
		counts[name]++
	}
}

// classes of requests.
type classes struct {
	writes, status, reads float64
}

// classify sums up requests for each instance. Events and the lease are none of
// an instance's, and a watch is there for all.
func classify(requests map[string]float64) classes {
	var c classes
	for name, n := range requests {
		verb, resource, _ := strings.Cut(name, " ")
		switch {
		case verb == "watch", resource == "leases", resource == "events":
		case verb == "get", verb == "list":
			c.reads += n
		default:
			c.writes += n
			if strings.HasSuffix(resource, "/status") {
				c.status += n
			}
		}
	}
	return c
}
