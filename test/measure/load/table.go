package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

func number(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(round(*v, 2), 'f', -1, 64)
}

// printComparison writes what became better or worse than in earlier results. What
// has a ratio to the bare client is compared by it: it depends least on the machine.
func printComparison(out io.Writer, before, now Report, chosen []scenario) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := 0
	for _, c := range chosen {
		earlier, found := before.find(c.name)
		later, ran := now.find(c.name)
		if !found || !ran {
			continue
		}
		for _, f := range later.Figures {
			old, ok := earlier.figure(f.Name)
			if !ok {
				continue
			}
			was, is := compared(old, f)
			if rows == 0 {
				fmt.Fprintf(w, "\ncompared with %s\tthen\tnow\tnow/then\n", earlier.Date.Format("2006-01-02"))
			}
			rows++
			fmt.Fprintf(w, "  %s: %s\t%s\t%s\t%s\n", c.name, f.Name, number(&was), number(&is), change(was, is))
		}
	}
	_ = w.Flush()
	if rows == 0 {
		fmt.Fprintln(out, "\nno earlier results of these scenarios to compare with")
	}
}

func (s Scenario) figure(name string) (Figure, bool) {
	for _, f := range s.Figures {
		if f.Name == name {
			return f, true
		}
	}
	return Figure{}, false
}

// compared returns the values to compare of two figures of one name: their ratios
// where both have one.
func compared(old, now Figure) (was, is float64) {
	if old.Ratio != nil && now.Ratio != nil {
		return *old.Ratio, *now.Ratio
	}
	return old.Operator, now.Operator
}

// change is the ratio of two values in words.
func change(was, is float64) string {
	switch was {
	case is:
		return "same"
	case 0:
		return "from zero"
	}
	ratio := is / was
	return number(&ratio)
}
