package git

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	// Timeout bounds one question to a server.
	Timeout = 10 * time.Second
	// maxAnswer is how much of an answer is read: some 100,000 branches and tags.
	maxAnswer = 8 << 20
)

// Repository is a repository on a git server, as one Application may read it.
type Repository struct {
	// URL of the repository, https://github.com/team/web.git.
	URL string
	// User and Token are the login; an empty Token is none. They are sent to the server of URL alone.
	User, Token string
	// HTTP makes the requests. It must follow no redirect: another server would get the question.
	HTTP *http.Client
}

// Error is why a server did not answer. Its text has nothing of the server's answer: the author of an Application reads it.
type Error struct {
	// Login: the server wants another login.
	Login bool
	// Down: the server is not reached, does not answer, or is overloaded. Another repository of it would not be answered either.
	Down bool
	// Wait is for how long the server asks to be left alone with this login, 0 if it does not ask.
	Wait time.Duration
	text string
	err  error
}

func (e *Error) Error() string { return e.text }

// Unwrap is for errors.Is. Its text must not be shown.
func (e *Error) Unwrap() error { return e.err }

// ask sends a command, and calls read with the answer. There is no second attempt here: the caller knows when to ask again.
func (r Repository) ask(ctx context.Context, body string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL+"/git-upload-pack", strings.NewReader(body))
	if err != nil {
		return &Error{text: "the URL of the repository is not valid", err: err}
	}
	q.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	q.Header.Set("Accept", "application/x-git-upload-pack-result")
	q.Header.Set("Git-Protocol", "version=2")
	q.Header.Set("User-Agent", "git/berg-operator")
	if r.Token != "" {
		q.SetBasicAuth(r.User, r.Token)
	}
	answer, err := r.HTTP.Do(q)
	if err != nil {
		return explain(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return refused(answer.StatusCode, RetryAfter(answer, time.Now()))
	}
	if err := read(io.LimitReader(answer.Body, maxAnswer)); err != nil {
		return explain(err)
	}
	// The connection serves the next question if nothing is left of this answer.
	_, _ = io.CopyN(io.Discard, answer.Body, 1)
	return nil
}

// refused treats 403 with a wait as a limit of the rate, as GitHub answers. Login is for answers that another login may change.
func refused(status int, wait time.Duration) error {
	limited := status == http.StatusTooManyRequests || status == http.StatusForbidden && wait > 0
	e := &Error{
		Down: status >= http.StatusInternalServerError || limited, Wait: wait,
		text: fmt.Sprintf("the git server answers %d (%s)", status, http.StatusText(status)),
	}
	switch {
	case limited:
		e.text += ": it is asked too often. An administrator can raise GIT_POLL_INTERVAL"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		e.Login = true
		e.text += ": it wants another login, or there is no such repository. Correct the Secret of spec.gitRepository.secretRef, or spec.gitRepository.repository"
	case status == http.StatusNotFound:
		e.Login = true // for a login without the right to read, too
		e.text += ": there is no such repository, or the token cannot read it. Correct spec.gitRepository.repository, or the Secret of spec.gitRepository.secretRef"
	case status >= 300 && status < 400:
		e.text += ": the repository has another name now. Correct spec.gitRepository.repository"
	}
	return e
}

// explain repeats nothing that the server has said. Down is for errors after which asking again may help.
func explain(err error) error {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var lookup *net.DNSError
	var timeout net.Error
	var said *serverError
	text, down := "the git server cannot be reached", true
	switch {
	case errors.As(err, &authority):
		text, down = "the certificate of the git server is of an authority that is not trusted: see BUILD_CA_CONFIG_MAP", false
	case errors.As(err, &invalid), errors.As(err, &hostname):
		text, down = "the certificate of the git server is not valid for it", false
	case errors.As(err, &lookup):
		text = "the name of the git server is not known"
	case errors.Is(err, context.Canceled):
		text = "the operator is being stopped"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		text = "the git server does not answer"
	case errors.Is(err, errProtocol), errors.As(err, &said), errors.Is(err, errRefused):
		text, down = errProtocol.Error(), false
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		text = "the git server ended its answer early, or its answer is too long"
	}
	return &Error{Down: down, text: text, err: err}
}
