package console

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// How often a line is written, and the size of the bar.
const (
	// redrawInterval is for terminals, reportInterval for everything else.
	redrawInterval = 100 * time.Millisecond
	reportInterval = 10 * time.Second
	// barWidth is the number of columns of the bar.
	barWidth = 24
)

// Progress shows on standard error how much of a bulk operation is done: one line that is rewritten
// on a terminal, one line every ten seconds elsewhere. Its methods may be called concurrently; mu guards the fields below it.
type Progress struct {
	console *Console
	clock   clock.PassiveClock
	verb    string
	total   int

	mu      sync.Mutex
	done    int
	note    string
	started time.Time
	written time.Time
	drawn   bool
}

// Progress starts one.
func (c *Console) Progress(now clock.PassiveClock, verb string, total int) *Progress {
	return &Progress{console: c, clock: now, verb: verb, total: total, started: now.Now(), written: now.Now()}
}

// Add counts n more as done.
func (p *Progress) Add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.draw(false)
}

// Note shows a note behind the figures, "" for none.
func (p *Progress) Note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.note != text {
		p.note = text
		p.draw(true)
	}
}

// Finish removes the line from a terminal.
func (p *Progress) Finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		p.console.ShowStatus("")
	}
}

// draw writes the line if it is due, or now. The caller holds mu.
func (p *Progress) draw(now bool) {
	interval := redrawInterval
	if !p.console.ErrTerminal {
		interval = reportInterval
	}
	drawn := p.clock.Now()
	if !now && drawn.Sub(p.written) < interval {
		return
	}
	p.written = drawn
	if !p.console.ErrTerminal {
		p.console.Notef("%s", p.line(drawn))
		return
	}
	p.console.ShowStatus(p.line(drawn))
	p.drawn = true
}

// line estimates the rest from the average so far. Without an item that is done there is no estimate. The caller holds mu.
func (p *Progress) line(now time.Time) string {
	text := fmt.Sprintf("%s: %d of %d", p.verb, p.done, p.total)
	if p.console.ErrTerminal && p.total > 0 {
		filled := barWidth * p.done / p.total
		text = fmt.Sprintf("%s %s%s %d/%d", p.verb, strings.Repeat("━", filled), strings.Repeat("─", barWidth-filled), p.done, p.total)
	}
	if p.done > 0 && p.done < p.total {
		if left := now.Sub(p.started) / time.Duration(p.done) * time.Duration(p.total-p.done); left > time.Second {
			text += fmt.Sprintf(", %s left", Duration(left))
		}
	}
	if p.note != "" {
		text += " — " + p.note
	}
	return text
}

// Duration formats a duration for people: 2h05m, 4m10s, 12s; negative ones with a minus.
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
