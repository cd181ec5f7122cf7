package git

import (
	"bufio"
	"compress/zlib"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
)

// maxCommit is how much of a commit is read.
const maxCommit = 64 << 10

// The types of objects in a pack, and the channel of a pack among the channels of an answer: https://git-scm.com/docs/pack-format
const (
	typeCommit  = 1
	channelPack = 1
)

// ReadMessage returns the message of a commit. It reads the beginning of what a clone of this commit alone would get: git sends the
// commit first. A server that sends commits without their files is asked for that, which saves it work.
func (r Repository) ReadMessage(ctx context.Context, commit string) (string, error) {
	arguments := []string{"no-progress", "want " + commit, "deepen 1"}
	message, err := r.readMessage(ctx, append(arguments, "filter tree:0", "done"))
	var known *Error
	if errors.As(err, &known) && errors.Is(known, errRefused) {
		message, err = r.readMessage(ctx, append(arguments, "done"))
	}
	return message, err
}

// readMessage skips the lines before the pack. A server that sends none has refused the request.
func (r Repository) readMessage(ctx context.Context, arguments []string) (message string, err error) {
	err = r.ask(ctx, request("fetch", arguments...), func(answer io.Reader) error {
		for {
			line, flushed, err := readLine(answer)
			var said *serverError
			switch {
			case errors.Is(err, io.EOF), errors.As(err, &said), flushed:
				return errRefused
			case err != nil:
				return err
			case string(line) == "packfile\n":
				message, err = parsePack(bufio.NewReader(&pack{lines: answer}))
				return err
			}
		}
	})
	return message, err
}

// pack reads the pack out of the lines of an answer.
type pack struct {
	lines io.Reader
	rest  []byte
}

// Read returns the lines of the channel with the pack, and drops those with progress.
func (p *pack) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		line, flushed, err := readLine(p.lines)
		if err != nil {
			return 0, err
		}
		if flushed {
			return 0, io.EOF
		}
		if len(line) > 0 && line[0] == channelPack {
			p.rest = line[1:]
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// parsePack returns the message of the first object of a pack, which must be a commit. It stops after the first object. The rest
// of the pack is not read.
func parsePack(r *bufio.Reader) (string, error) {
	var head [12]byte // PACK, version and number of objects
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	first, err := r.ReadByte()
	if err != nil {
		return "", err
	}
	if string(head[:4]) != "PACK" || first>>4&7 != typeCommit {
		return "", errProtocol
	}
	for size := first; size&0x80 != 0; { // the rest of the size, which nothing needs
		if size, err = r.ReadByte(); err != nil {
			return "", err
		}
	}
	content, err := zlib.NewReader(r)
	if err != nil {
		return "", errProtocol
	}
	commit, err := io.ReadAll(io.LimitReader(content, maxCommit))
	if err != nil {
		return "", err
	}
	_, message, _ := strings.Cut(string(commit), "\n\n")
	return message, nil
}

var skip = regexp.MustCompile(`(?i)\[(skip ci|ci skip|no ci)\]`)

// Skips reports whether a message of a commit asks to build nothing, as GitHub, GitLab and Bitbucket understand it.
func Skips(message string) bool { return skip.MatchString(message) }
