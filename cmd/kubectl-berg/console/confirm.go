package console

import (
	"bufio"
	"strings"
)

// Confirm asks a question on a terminal, and returns nil for yes. Where nobody can answer, the
// option that answers beforehand is asked for.
func (c *Console) Confirm(question string) error {
	if !c.InTerminal || !c.ErrTerminal {
		return Errorf(ExitUsage, "%s: nobody can be asked here: say --yes", question)
	}
	c.Notef("%s [y/N]", question)
	answer, err := bufio.NewReader(c.In).ReadString('\n')
	if err != nil && answer == "" {
		return Errorf(ExitInterrupted, "no answer: nothing was done")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return Errorf(ExitInterrupted, "nothing was done")
	}
}
