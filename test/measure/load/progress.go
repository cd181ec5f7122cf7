package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress tells what is under way: one line that is written over on a terminal,
// and a line now and then elsewhere.
type progress struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	began    time.Time
	last     time.Time
	width    int
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, began: time.Now()}
	if f, ok := out.(*os.File); ok {
		p.terminal = term.IsTerminal(int(f.Fd()))
	}
	return p
}

func (p *progress) title(format string, args ...any) {
	p.done()
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "\n=== %s\n", fmt.Sprintf(format, args...))
	p.last = time.Time{}
}

// say shows the present state.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pause := 10 * time.Second
	if p.terminal {
		pause = 200 * time.Millisecond
	}
	if time.Since(p.last) < pause {
		return
	}
	p.last = time.Now()
	elapsed := time.Since(p.began).Round(time.Second)
	text := fmt.Sprintf("  %3d:%02d  %s", int(elapsed.Minutes()), int(elapsed.Seconds())%60, fmt.Sprintf(format, args...))
	if !p.terminal {
		fmt.Fprintln(p.out, text)
		return
	}
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", max(p.width-len(text), 0)))
	p.width = len(text)
}

// now shows what begins, however shortly after something else.
func (p *progress) now(format string, args ...any) {
	p.mu.Lock()
	p.last = time.Time{}
	p.mu.Unlock()
	p.say(format, args...)
}

// done takes the line away.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && p.width > 0 {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.width))
	}
	p.width = 0
}
