package importer

import (
	"maps"
	"regexp"
	"strings"
)

// variable is one of a Dockerfile or a shell, with a default or another value behind a dash or a plus.
var variable = regexp.MustCompile(`\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})`)

// expand replaces variables by their values. Those that are not known stay as they are with keep, and are empty otherwise.
func expand(text string, values map[string]string, keep bool) string {
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		part := variable.FindStringSubmatch(found)
		value, known := values[part[1]+part[2]]
		switch {
		case strings.HasSuffix(part[3], "-") && (!known || value == "" && part[3] == ":-"):
			return part[4]
		case strings.HasSuffix(part[3], "+") && (!known || value == "" && part[3] == ":+"):
			return ""
		case strings.HasSuffix(part[3], "+"):
			return part[4]
		case known || !keep:
			return value
		}
		return found
	})
}

// shellCommand is one of a command line. piped: it reads what the one before it writes.
type shellCommand struct {
	text  string
	piped bool
}

// shellCommands splits a command line, but not in quotes.
func shellCommands(line string) (out []shellCommand) {
	start, piped, quote := 0, false, rune(0)
	end := func(at, length int, next bool) {
		if text := strings.TrimSpace(line[start:at]); text != "" {
			out = append(out, shellCommand{text, piped})
		}
		start, piped = at+length, next
	}
	skip := -1
	for at, r := range line {
		rest := line[at:]
		switch {
		case at < skip:
		case r == '\\' && quote != '\'':
			skip = at + 2
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "||"):
			end(at, 2, false)
			skip = at + 2
		case r == '|':
			end(at, 1, true)
		case r == ';' || r == '\n':
			end(at, 1, false)
		}
	}
	end(len(line), 0, false)
	return out
}

// shellWords splits a command into its words, without their quotes. With redirects, an arrow is a word of its own.
func shellWords(command string, redirects bool) (out []string) {
	var word strings.Builder
	inWord, quote, escaped := false, rune(0), false
	end := func() {
		if inWord {
			out = append(out, word.String())
		}
		word.Reset()
		inWord = false
	}
	for _, r := range command {
		switch {
		case escaped:
			if quote != 0 && !strings.ContainsRune("\"\\$`", r) {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			escaped, inWord = false, true
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0 && r != quote:
			word.WriteRune(r)
		case quote != 0:
			quote = 0
		case r == '"' || r == '\'':
			quote, inWord = r, true
		case strings.ContainsRune(" \t\r\n", r):
			end()
		case r == '>' && redirects:
			if of := word.String(); of == "1" || of == "2" || of == "&" {
				word.Reset()
				inWord = false
			}
			end()
			out = append(out, ">")
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	end()
	return out
}

var assignment = regexp.MustCompile(`^(?:(?:export|local|declare)\s+)?([A-Za-z_]\w*)=(\S*)$`)

// assigned returns the variables of a shell after a command, which may set one.
func assigned(values map[string]string, command string) map[string]string {
	found := assignment.FindStringSubmatch(command)
	if found == nil {
		return values
	}
	values = maps.Clone(values)
	values[found[1]] = unquote(found[2])
	return values
}

// printed is what echo or printf writes, by its words.
func printed(words []string) string {
	text := words[1:]
	for len(text) > 1 && len(text[0]) > 1 && strings.Trim(text[0][1:], "neE") == "" && text[0][0] == '-' {
		text = text[1:]
	}
	if words[0] == "printf" && len(text) > 1 && strings.Contains(text[0], "%s") {
		text = []string{strings.Replace(text[0], "%s", text[1], 1)}
	}
	return strings.TrimSpace(strings.ReplaceAll(strings.Join(text, " "), `\n`, "\n"))
}
