package command

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

// spinner is a line on a terminal's standard error that says what is being waited for, and since
// when. Elsewhere there is none.
type spinner struct {
	console *console.Console
	clock   clock.WithTicker

	mu    sync.Mutex
	text  string
	since time.Time
	turn  int
	end   chan struct{}
	ended chan struct{}
}

const frame = 120 * time.Millisecond

var frames = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// show begins it, or changes what it says.
func (s *spinner) show(text string) {
	if !s.console.ErrTerminal || s.console.Format == console.JSON {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = text
	if s.since.IsZero() {
		s.since = s.clock.Now()
	}
	if s.end != nil {
		return
	}
	s.end, s.ended = make(chan struct{}), make(chan struct{})
	go s.spin(s.end, s.ended)
}

func (s *spinner) spin(end, ended chan struct{}) {
	defer close(ended)
	ticker := s.clock.NewTicker(frame)
	defer ticker.Stop()
	for {
		s.draw()
		select {
		case <-end:
			fmt.Fprint(s.console.Err, "\r\x1b[K")
			return
		case <-ticker.C():
		}
	}
}

func (s *spinner) draw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	line := fmt.Sprintf("%s (%s)", s.text, console.Duration(s.clock.Since(s.since)))
	if width := s.console.Width(); width > 4 && len([]rune(line)) > width-4 {
		line = string([]rune(line)[:width-5]) + "…"
	}
	fmt.Fprintf(s.console.Err, "\r%s %s\x1b[K", s.console.PaintErr(console.Cyan, string(frames[s.turn%len(frames)])), line)
}

// stop removes it.
func (s *spinner) stop() {
	s.mu.Lock()
	end, ended := s.end, s.ended
	s.end, s.ended = nil, nil
	s.mu.Unlock()
	if end != nil {
		close(end)
		<-ended
	}
}
