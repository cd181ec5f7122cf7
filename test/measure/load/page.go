package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// The part of the page of results that is generated.
const (
	pageBegin = "<!-- results:begin -->"
	pageEnd   = "<!-- results:end -->"
)

// writePage replaces the results on a page by the results of a report. Figures from before changed are marked.
func writePage(path string, r Report, changed time.Time) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), pageBegin)
	_, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return errors.New(path + " has no place for results")
	}
	return writeFile(path, []byte(before+pageBegin+"\n"+results(r, changed)+pageEnd+after))
}

// results writes a report as Markdown.
func results(r Report, changed time.Time) string {
	var b bytes.Buffer
	for _, s := range r.Scenarios {
		m := s.Machine
		fmt.Fprintf(&b, "\n### %s\n\n%s, commit %s, on %d CPUs (%s), %d GiB, Linux %s, %s; load average %s.\n\n",
			s.Title, s.Date.Format("2006-01-02 15:04 MST"), m.Commit, m.Processors, m.Processor, m.MemoryGiB, m.Kernel, m.Go, s.Load)
		if s.Date.Before(changed) {
			fmt.Fprintf(&b, staleMark, measureCommand(s.Name))
		}
		columns := s.Columns
		if columns == nil {
			columns = []string{theOperator, theBare}
		}
		fmt.Fprintf(&b, "| | %s | ratio | target | |\n| --- | ---: | ---: | ---: | --- | --- |\n", strings.Join(columns, " | "))
		for _, f := range s.Figures {
			target, met := "", ""
			if f.Target != nil {
				target, met = f.Target.String(), "met"
				if !f.met() {
					met = "**missed**"
				}
			}
			fmt.Fprintf(&b, "| %s, %s | %s | %s | %s | %s | %s |\n", f.Name, f.Unit, number(&f.Operator), number(f.Bare), number(f.Ratio), target, met)
		}
		if len(s.Growth) == 0 {
			continue
		}
		b.WriteString("\n| live | minutes | to Starting p50, ms | p99, ms | operator, MiB | API server, MiB | etcd, MiB | database, MB |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
		for _, g := range s.Growth {
			fmt.Fprintf(&b, "| %d | %g | %g | %g | %g | %g | %g | %g |\n", g.Instances, g.Minutes, g.StartingP50, g.StartingP99, g.OperatorMiB, g.APIServerMiB, g.EtcdMiB, g.EtcdDatabaseMB)
		}
	}
	return b.String()
}
