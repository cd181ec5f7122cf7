package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// heartbeat is how often a step that says nothing shows that it is still at work.
const heartbeat = 15 * time.Second

// show prints the steps: on a terminal the one at work is its last line and counts the seconds.
type show struct {
	mutex    sync.Mutex
	out      io.Writer
	terminal bool
	working  string // title of the step at work
	since    time.Time
	spoken   time.Time // when something was last printed
}

func newShow(out io.Writer) *show {
	return &show{out: out, terminal: isTerminal(out)}
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// outcome is what a step has to say when it is done, added to its title.
type outcome string

// step runs one step and prints one line for it: what was done and how long it took. On failure it
// returns a stepError that names the step; look says where to look then.
func (s *show) step(ctx context.Context, title string, look []string, work func(context.Context) (outcome, error)) error {
	stop := s.begin(title)
	result, err := work(ctx)
	stop()
	took := time.Since(s.since)
	if err != nil {
		if ctx.Err() != nil {
			// What broke off because of that is no finding.
			err, look = errInterrupted, nil
		}
		s.line("✗ %s (%s)", title, roundTime(took))
		return &stepError{step: title, err: err, look: look}
	}
	if result != "" {
		title += ": " + string(result)
	}
	s.line("✓ %s (%s)", title, roundTime(took))
	return nil
}

var errInterrupted = errors.New("interrupted: start it again to continue from what there is")

// begin shows the step as being at work until the returned function is called.
func (s *show) begin(title string) (stop func()) {
	s.mutex.Lock()
	s.working, s.since, s.spoken = title, time.Now(), time.Now()
	s.mutex.Unlock()
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			s.tick()
			select {
			case <-ticker.C:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		ticking.Wait()
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.clearLine()
		s.working = ""
	}
}

func (s *show) tick() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	elapsed := time.Since(s.since).Truncate(time.Second)
	switch {
	case s.terminal:
		fmt.Fprintf(s.out, "\r\x1b[K… %s (%s)", s.working, elapsed)
	case time.Since(s.spoken) >= heartbeat:
		s.spoken = time.Now()
		fmt.Fprintf(s.out, "… %s (%s so far)\n", s.working, elapsed)
	}
}

// note prints a line that belongs to the step at work.
func (s *show) note(format string, args ...any) { s.line("    "+format, args...) }

func (s *show) line(format string, args ...any) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.clearLine()
	s.spoken = time.Now()
	fmt.Fprintf(s.out, format+"\n", args...)
}

func (s *show) clearLine() {
	if s.terminal && s.working != "" {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
}

// notes is a writer that shows each line as a note.
func (s *show) notes() *lineWriter {
	return &lineWriter{write: func(line string) { s.note("%s", line) }}
}

// lineWriter passes complete lines on. It is written to by one program at a time.
type lineWriter struct {
	write func(line string)
	rest  []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		w.rest = rest
		if text := strings.TrimRight(string(line), "\r "); text != "" {
			w.write(text)
		}
	}
}

func roundTime(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// stepError says which step failed, why, and what to look at.
type stepError struct {
	step string
	err  error
	look []string
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func (e *stepError) print(w io.Writer) {
	fmt.Fprintf(w, "\nThe demo stopped at: %s\n  why: %s\n", e.step, strings.ReplaceAll(e.err.Error(), "\n", "\n       "))
	var more *hintedError
	look := e.look
	if errors.As(e.err, &more) {
		look = append(look[:len(look):len(look)], more.look...)
	}
	if len(look) > 0 {
		fmt.Fprintf(w, "  look at:\n    %s\n", strings.Join(look, "\n    "))
	}
}

// hintedError is an error that knows where to look.
type hintedError struct {
	error
	look []string
}

func (e *hintedError) Unwrap() error { return e.error }
