package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/doctor"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/lint"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

type lintOptions struct {
	files    []string
	settings []string
	strict   bool
}

func (r *root) lint() *cobra.Command {
	var o lintOptions
	c := &cobra.Command{
		Use:   "lint -f FILE",
		Short: "Check Challenges in files, without a cluster",
		Long: `Check Challenges in files and folders, without a cluster: what the API server refuses, what no instance can
start with, and what YAML makes of a value. The operator uses the same rules for the condition Accepted.
Files without a Challenge are skipped, and links that lead out of a folder are not followed. It is assumed that the
operator has its default settings and takes sandbox: nested, with a warning: --setting says what yours has.

Exit code 0: no error, 3: no Challenge found, 4: an error was found (with --strict, or a warning).`,
		Example: `  kubectl berg lint -f challenges/
  kubectl berg lint -f challenges/ -o sarif > lint.sarif
  kubectl berg lint -f challenge.yaml --setting CHALLENGE_ALLOWED_CAPABILITIES=ALL`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return untilCancelled(cmd.Context(), func() error { return r.lintFiles(o) })
		},
	}
	f := c.Flags()
	f.StringSliceVarP(&o.files, "filename", "f", nil, "files or folders with Challenges, - for standard input")
	f.StringSliceVar(&o.settings, "setting", nil, "setting of the operator, as in CHALLENGE_ALLOWED_CAPABILITIES=KILL (default: the operator's default)")
	f.BoolVar(&o.strict, "strict", false, "exit with code 4 for warnings, too")
	_ = c.MarkFlagRequired("filename")
	return c
}

// lintResult is the JSON output of lint.
type lintResult struct {
	Challenges int            `json:"challenges"`
	Errors     int            `json:"errors"`
	Warnings   int            `json:"warnings"`
	Findings   []lint.Finding `json:"findings"`
}

// lintFiles needs a Challenge or an error: a folder without both was probably not meant.
func (r *root) lintFiles(o lintOptions) error {
	settings, err := parseRuleSettings(o.settings)
	if err != nil {
		return err
	}
	sources, err := r.sources(o.files, true)
	if err != nil {
		return err
	}
	result := lintResult{Findings: []lint.Finding{}}
	for _, s := range sources {
		found := lint.Check(s, settings)
		result.Challenges += found.Found
		result.Findings = append(result.Findings, found.Findings...)
	}
	for _, f := range result.Findings {
		if f.Severity == lint.Error {
			result.Errors++
		} else {
			result.Warnings++
		}
	}
	if result.Challenges == 0 && result.Errors == 0 {
		return console.Errorf(console.ExitNotFound, "no Challenge found in %s", strings.Join(o.files, ", "))
	}
	switch r.Format {
	case console.JSON:
		err = r.WriteJSON(result)
	case console.SARIF:
		err = r.WriteJSON(lint.SARIF(result.Findings, r.version))
	default:
		r.writeFindings(result.Findings)
		if r.Format != console.Name {
			r.Notef("%d Challenges: %d errors, %d warnings", result.Challenges, result.Errors, result.Warnings)
		}
	}
	if err != nil {
		return err
	}
	return problemError(result.Errors > 0 || o.strict && result.Warnings > 0)
}

// writeFindings writes a line for each, in the form that editors and CI systems read.
func (r *root) writeFindings(findings []lint.Finding) {
	for _, f := range findings {
		if r.Format == console.Name {
			r.Printf("%s\n", f.Challenge)
			continue
		}
		colour := console.Red
		if f.Severity == lint.Warning {
			colour = console.Yellow
		}
		position := f.Field
		if position != "" {
			position += ": "
		}
		r.Printf("%s:%d:%d: %s: %s%s\n", f.File, f.Line, f.Column, r.Paint(colour, string(f.Severity)), position, console.OneLine(f.Message))
	}
}

// nestedProfile is the setting without which the operator refuses sandboxes.
const nestedProfile = "CHALLENGE_NESTED_SECCOMP_PROFILE"

// parseRuleSettings reads the settings that limit a Challenge and ignores the others.
func parseRuleSettings(given []string) (rules.Settings, error) {
	values := map[string]string{
		"CHALLENGE_ALLOWED_CAPABILITIES": doctor.Defaults["CHALLENGE_ALLOWED_CAPABILITIES"],
		"CHALLENGE_START_DEADLINE":       doctor.Defaults["CHALLENGE_START_DEADLINE"],
		// The default refuses sandboxes. An author who writes one has an administrator who prepares nodes.
		nestedProfile: "Unconfined",
	}
	last := ""
	out := rules.Settings{SandboxAssumed: true}
	for _, text := range given {
		name, value, ok := strings.Cut(text, "=")
		switch known := slices.Contains(doctor.SettingNames, name); {
		case ok && known:
			values[name], last = value, name
			out.SandboxAssumed = out.SandboxAssumed && name != nestedProfile
		case !ok && last == "CHALLENGE_ALLOWED_CAPABILITIES": // the option splits its value at commas
			values[last] += "," + text
		default:
			return rules.Settings{}, console.Errorf(console.ExitUsage, "--setting %s: must be NAME=VALUE, with the name of a setting that concerns Challenges", text)
		}
	}
	for name := range strings.SplitSeq(values["CHALLENGE_ALLOWED_CAPABILITIES"], ",") {
		if name = rules.Capability(strings.TrimSpace(name)); name != "" && name != "NONE" {
			out.Capabilities = append(out.Capabilities, name)
		}
	}
	out.NestedSandbox = values[nestedProfile] != ""
	if text := values["CHALLENGE_START_DEADLINE"]; text != "" {
		deadline, err := time.ParseDuration(text)
		if err != nil {
			return out, console.Errorf(console.ExitUsage, "CHALLENGE_START_DEADLINE: %w", err)
		}
		out.StartDeadline = deadline
	}
	return out, nil
}

// sources reads files, and the YAML and JSON files of folders; recursive includes subfolders.
func (r *root) sources(files []string, recursive bool) ([]lint.Source, error) {
	var out []lint.Source
	for _, file := range files {
		if file == "-" {
			content, err := localfile.ReadAll(r.In)
			if err != nil {
				return nil, console.Errorf(console.ExitFailed, "standard input: %w", err)
			}
			out = append(out, lint.Source{Name: "standard input", Content: content, Named: true})
			continue
		}
		info, err := os.Stat(file)
		if err != nil {
			return nil, console.Errorf(console.ExitNotFound, "-f: %w", err)
		}
		paths, folder := []string{file}, localfile.Folder{}
		if info.IsDir() { // a link in it does not lead out of it
			paths, err = filesIn(file, recursive)
			if err == nil {
				folder, err = localfile.Within(file)
			}
			if err != nil {
				return nil, console.Errorf(console.ExitNotFound, "-f: %w", err)
			}
		}
		for _, path := range paths {
			content, err := folder.Read(path)
			if errors.Is(err, localfile.ErrRefused) && info.IsDir() {
				r.Notef("%s %s %s", r.PaintErr(console.Yellow, "warning:"), path, console.OneLine(err.Error()))
				continue
			}
			if err != nil {
				return nil, console.Errorf(console.ExitNotFound, "-f %s: %w", path, err)
			}
			out = append(out, lint.Source{Name: path, Content: content, Named: !info.IsDir()})
		}
	}
	return out, nil
}

// filesIn lists YAML and JSON files, without those in hidden folders.
func filesIn(folder string, recursive bool) (paths []string, err error) {
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != folder && (!recursive || strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path))):
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}
