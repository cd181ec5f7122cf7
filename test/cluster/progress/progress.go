// Package progress shows a person what a command is at.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Progress tells a human what goes on: one line that renews itself on a terminal,
// and otherwise a line at the beginning, one every quarter of a minute and one at the end.
type Progress struct {
	out      io.Writer
	terminal bool
}

// New returns a Progress that writes to out.
func New(out io.Writer) *Progress {
	p := &Progress{out: out}
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			p.terminal = info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
		}
	}
	return p
}

// Say writes a line.
func (p *Progress) Say(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...)
}

// Step runs work and says what it is and how long it took. The detail that work reports is shown while it runs.
func (p *Progress) Step(what string, work func(detail func(string)) error) error {
	var (
		begin  = time.Now()
		mu     sync.Mutex
		detail string
		done   = make(chan struct{})
		ended  sync.WaitGroup
	)
	line := func() string {
		mu.Lock()
		defer mu.Unlock()
		text := fmt.Sprintf("%s  %s", what, Elapsed(begin))
		if detail != "" {
			text += "  " + detail
		}
		return text
	}
	interval := 15 * time.Second
	if p.terminal {
		interval = 200 * time.Millisecond
	}
	ended.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if p.terminal {
					fmt.Fprintf(p.out, "\r\033[K  … %.100s", line())
				} else {
					fmt.Fprintf(p.out, "  … %s\n", line())
				}
			}
		}
	})

	err := work(func(s string) {
		mu.Lock()
		defer mu.Unlock()
		detail = s
	})
	close(done)
	ended.Wait()

	if p.terminal {
		fmt.Fprint(p.out, "\r\033[K")
	}
	mark := "✓"
	if err != nil {
		mark = "✗"
	}
	fmt.Fprintf(p.out, "  %s %s  %s\n", mark, what, Elapsed(begin))
	return err
}

// Elapsed writes how long ago something was.
func Elapsed(since time.Time) string {
	d := time.Since(since)
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}
