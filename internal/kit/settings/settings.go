// Package settings reads settings from the command line, then the environment, then a ConfigMap,
// then the defaults. A section is a table of settings, of the process or of a family. Help,
// documentation and the checks of the deployed manifests come from it.
package settings

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ConfigMap is the name of the ConfigMap with settings, in the namespace of the programs.
const ConfigMap = "berg-operator-settings"

// ReasonInvalid is the reason of the event about a ConfigMap whose content a program does not use.
const ReasonInvalid = "InvalidSettings"

// Invalid begins the error of a program that does not start with its settings. One setting in each line follows.
const Invalid = "the configuration is invalid, nothing was started:"

// Section is a table of settings that belong together.
type Section struct {
	// Title is the title of the section in help and documentation.
	Title string
	// Settings in the order of the documentation.
	Settings []Setting
	// Check compares settings with each other after all were read; one that could not be
	// parsed is the zero value. Nil: there is nothing to compare.
	Check func() []error
	// Warnings returns combinations that are valid and probably not intended, each naming its
	// settings. Nil: nothing.
	Warnings func() []string
}

// Setting is one row of a table.
type Setting struct {
	// Name of the environment variable.
	Name string
	// Default is the value if the variable is absent or empty.
	Default string
	// Help is one or two sentences for an administrator.
	Help string
	// Value parses a text into its variable.
	Value Value
}

// New returns a setting, so that a table has a line a setting.
func New(name, defaultText string, value Value, help string) Setting {
	return Setting{Name: name, Default: defaultText, Help: help, Value: value}
}

// Flag returns the name of the command line option, without the dashes.
func (s Setting) Flag() string {
	return strings.ToLower(strings.ReplaceAll(s.Name, "_", "-"))
}

// Value parses a text into its variable, or returns an error that describes valid texts.
type Value struct {
	set  func(text string) error
	form Form
}

// Form describes the texts of a value, for schemas. It never excludes a text that the value
// accepts; the value itself may be stricter.
type Form struct {
	// Type is the type of the value in JSON, if it is not a string.
	Type Type
	// Enum are the only texts. Nil: there are others.
	Enum []string
	// Minimum and Maximum bound an Integer.
	Minimum, Maximum int
	// Pattern is a regular expression of the whole text, in the syntax that Go and ECMAScript
	// share. Empty: any text.
	Pattern string
}

// Type is a type of values.
type Type int

// The types of values.
const (
	// Text is any type that is not one of the others.
	Text Type = iota
	// Boolean needs no text as an option.
	Boolean
	Integer
	// Quantity is an amount of Kubernetes, which may be a number.
	Quantity
	// List is separated by commas.
	List
)

// Form returns the description of the value's texts.
func (v Value) Form() Form { return v.form }

// In returns the value with another form.
func (v Value) In(form Form) Value {
	v.form = form
	return v
}

// Source says where the text of a setting comes from.
type Source string

// The sources.
const (
	FromDefault     Source = "default"
	FromConfigMap   Source = "ConfigMap " + ConfigMap
	FromEnvironment Source = "environment"
	FromOption      Source = "command line"
)

// Effective is a setting with the text that is used.
type Effective struct {
	Name, Value string
	Source      Source
}

// LogValues returns settings as keys and values of a log line, and the names of the settings of each source.
func LogValues(effective []Effective) []any {
	var values []any
	names := map[Source][]string{}
	for _, e := range effective {
		values = append(values, e.Name, e.Value)
		names[e.Source] = append(names[e.Source], e.Name)
	}
	for _, source := range []Source{FromOption, FromEnvironment, FromConfigMap} {
		if len(names[source]) > 0 {
			values = append(values, "from the "+string(source), names[source])
		}
	}
	return values
}

// ErrHelp is returned after the help was printed.
var ErrHelp = flag.ErrHelp

// Load reads every setting of some sections. An empty variable counts as absent. It reports
// all errors together, each with its variable. If args ask for help, it prints help to out,
// beginning with about, and returns ErrHelp. The variables of the sections are only valid if it returns no error.
func Load(about string, sections []Section, args []string, getenv func(string) string, out io.Writer) ([]Effective, error) {
	return LoadShared(about, sections, args, getenv, nil, out)
}

// LoadShared is Load with the content of a ConfigMap, which shared returns, with an error about its names. It is called after the other sources were
// read, so that it may use their settings, and only if these are valid. The content is for several programs: names of others have no effect.
//
// A variable with the default counts as absent, too: the installers list every variable with its default.
func LoadShared(about string, sections []Section, args []string, getenv func(string) string, shared func() (map[string]string, error), out io.Writer) ([]Effective, error) {
	given, err := parseOptions(about, sections, args, out)
	if err != nil {
		return nil, err
	}
	find := func(s Setting) (string, Source) {
		if o := given[s.Name]; o.set {
			return o.text, FromOption
		}
		if env := strings.TrimSpace(getenv(s.Name)); env != "" && env != s.Default {
			return env, FromEnvironment
		}
		return s.Default, FromDefault
	}
	// The first pass validates the other sources and gives shared its settings, such as the namespace. The second pass sets every
	// variable again.
	effective, errs := read(sections, find)
	if shared != nil && len(errs) == 0 {
		content, err := shared()
		// Without content there is nothing to compare. With content the error is about names, and is reported together with the
		// others.
		if err != nil && content == nil {
			return nil, err
		}
		effective, errs = read(sections, func(s Setting) (string, Source) {
			text, source := find(s)
			if value := strings.TrimSpace(content[s.Name]); source == FromDefault && value != "" {
				return value, FromConfigMap
			}
			return text, source
		})
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, section := range sections {
		if section.Check != nil {
			errs = append(errs, section.Check()...)
		}
	}
	return effective, errors.Join(errs...)
}

// parseOptions returns the options by the names of their settings.
func parseOptions(about string, sections []Section, args []string, out io.Writer) (map[string]*option, error) {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned, and help is printed once, below
	given := map[string]*option{}
	for _, section := range sections {
		for _, s := range section.Settings {
			given[s.Name] = &option{boolean: s.Value.form.Type == Boolean}
			flags.Var(given[s.Name], s.Flag(), s.Help)
		}
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			printHelp(out, about, sections)
		}
		return nil, err
	}
	if rest := flags.Args(); len(rest) > 0 {
		return nil, fmt.Errorf("unexpected argument %q: options begin with --", rest[0])
	}
	return given, nil
}

// FindOption returns the value that a command line gives to a setting. The last one counts. It is for a program that needs one
// setting of another program's command line, and has not its sections.
func FindOption(args []string, setting string) (value string, given bool) {
	name := Setting{Name: setting}.Flag()
	for i, arg := range args {
		option, text, assigned := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case !strings.HasPrefix(arg, "-") || option != name:
		case assigned:
			value, given = text, true
		case i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			value, given = args[i+1], true
		default:
			value, given = "true", true
		}
	}
	return value, given
}

// read sets every setting to the text that find returns.
func read(sections []Section, find func(Setting) (string, Source)) (effective []Effective, errs []error) {
	for _, section := range sections {
		for _, s := range section.Settings {
			text, source := find(s)
			if err := s.Value.set(text); err != nil {
				prefix := ""
				if source == FromConfigMap {
					prefix = string(source) + ": "
				}
				errs = append(errs, fmt.Errorf("%s%s=%q: %w", prefix, s.Name, text, err))
			}
			effective = append(effective, Effective{s.Name, text, source})
		}
	}
	return effective, errs
}

// Warnings returns the warnings of some sections.
func Warnings(sections []Section) []string {
	var all []string
	for _, section := range sections {
		if section.Warnings != nil {
			all = append(all, section.Warnings()...)
		}
	}
	return slices.Clip(all)
}

// option is a flag that remembers whether it was given.
type option struct {
	text    string
	set     bool
	boolean bool
}

func (o *option) String() string     { return o.text }
func (o *option) Set(s string) error { o.text, o.set = s, true; return nil }
func (o *option) IsBoolFlag() bool   { return o.boolean }

func printHelp(out io.Writer, about string, sections []Section) {
	_, _ = fmt.Fprintf(out, "%s\n\nOptions (each also as an environment variable, or in the ConfigMap %s;\nan option wins over a variable, and both over the ConfigMap):\n", about, ConfigMap)
	for _, section := range sections {
		_, _ = fmt.Fprintf(out, "\n%s\n", section.Title)
		for _, s := range section.Settings {
			_, _ = fmt.Fprintf(out, "  --%s  (%s, default %q)\n        %s\n", s.Flag(), s.Name, s.Default, s.Help)
		}
	}
}
