package console

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// redraw is how often the line of progress is written on a terminal, report where there is
	// none.
	redraw = 100 * time.Millisecond
	report = 10 * time.Second
	// barWidth is how many columns the bar takes.
	barWidth = 24
)

// Progress is a line on standard error that tells how far a bulk action is: one that is
// rewritten on a terminal, one every ten seconds elsewhere.
type Progress struct {
	console *Console
	clock   clock.PassiveClock
	verb    string
	total   int

	mu      sync.Mutex
	done    int
	note    string
	began   time.Time
	written time.Time
	drawn   bool
}

// Progress begins one.
func (c *Console) Progress(now clock.PassiveClock, verb string, total int) *Progress {
	return &Progress{console: c, clock: now, verb: verb, total: total, began: now.Now(), written: now.Now()}
}

// Add tells that n more are done.
func (p *Progress) Add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.draw(false)
}

// Note shows what is the matter, "" for nothing.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.note == text {
		return
	}
	p.note = text
	p.draw(true)
}

// Finish removes the line from a terminal.
func (p *Progress) Finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.console.Err, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *Progress) draw(now bool) {
	every := redraw
	if !p.console.ErrTerminal {
		every = report
	}
	at := p.clock.Now()
	if !now && at.Sub(p.written) < every {
		return
	}
	p.written = at
	line := p.line(at)
	if !p.console.ErrTerminal {
		fmt.Fprintln(p.console.Err, line)
		return
	}
	if width := p.console.Width(); width > 0 {
		line = cut(line, width-1)
	}
	fmt.Fprint(p.console.Err, "\r"+line+"\x1b[K")
	p.drawn = true
}

func (p *Progress) line(at time.Time) string {
	text := fmt.Sprintf("%s: %d of %d", p.verb, p.done, p.total)
	if p.console.ErrTerminal && p.total > 0 {
		filled := barWidth * p.done / p.total
		text = fmt.Sprintf("%s %s%s %d/%d", p.verb, strings.Repeat("━", filled), strings.Repeat("─", barWidth-filled), p.done, p.total)
	}
	if left := p.left(at); left > time.Second {
		text += fmt.Sprintf(", %s left", Duration(left))
	}
	if p.note != "" {
		text += " — " + p.note
	}
	return text
}

// left is how long the rest takes at the rate so far.
func (p *Progress) left(at time.Time) time.Duration {
	if p.done == 0 || p.done >= p.total {
		return 0
	}
	return at.Sub(p.began) / time.Duration(p.done) * time.Duration(p.total-p.done)
}

// Duration writes a time as people do: 2h05m, 4m10s, 12s; negative ones with a minus.
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + Duration(-d)
	}
	d = d.Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h >= 48:
		return fmt.Sprintf("%dd%dh", h/24, h%24)
	case h > 0:
		return fmt.Sprintf("%dh%02dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm%02ds", m, s)
	default:
		return fmt.Sprintf("%ds", s)
	}
}
