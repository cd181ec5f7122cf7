package command

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/importer"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/lint"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/localfile"
)

// secretName matches build arguments whose values must not be in a command that is printed.
var secretName = regexp.MustCompile(`(?i)flag|pass|secret|token|key`)

type importOptions struct {
	importer.Options

	variables []string
	settings  []string
	strict    bool
}

func (r *root) importFiles() *cobra.Command {
	var o importOptions
	c := &cobra.Command{
		Use:   "import FILE|FOLDER",
		Short: "Make a Challenge of a compose file, a Dockerfile or a challenge of klodd, kCTF or rCTF",
		Long: `Make a Challenge of a compose file, a Dockerfile or a challenge of klodd, kCTF or rCTF, without a cluster. A folder is
searched for them: each compose file in it becomes a Challenge, Dockerfiles alone become the containers of one.
Handouts, solutions and health checks are left out. A challenge.yml of ctfcli gives name, category, flag and the kind of
port. Files outside of the folder are not read, not even through a link, unless --allow-outside is given.

The Challenge goes to standard output. Standard error first asks where the flag is, if that is not certain: commands of
a Dockerfile are not interpreted. Then it says what could not be carried over, in the words of the file, what was
chosen where the file is silent, and which images to build and push.

Exit code 0: the Challenge passes lint, 1: the file cannot be read, 3: nothing to import was found,
4: lint finds an error in the Challenge (with --strict, or something could not be carried over, or it asks where the flag is).`,
		Example: `  kubectl berg import compose.yaml > challenge.yaml
  kubectl berg import challenges/guestbook/ --registry ghcr.io/example --tag 2
  kubectl berg import challenges/kernel/ --flag-file '/root/flag-{entropy}.txt' > challenge.yaml
  kubectl berg import compose.yaml --env FLAG='flag{test}' -n berg | kubectl apply -f -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return untilCancelled(cmd.Context(), func() error { return r.runImport(args[0], o) })
		},
	}
	f := c.Flags()
	f.StringVar(&o.Name, "name", "", "name of the Challenge (default: that of the compose project, or of the folder)")
	f.StringVar(&o.Registry, "registry", importer.DefaultRegistry, "registry, with a path, for the images that are built")
	f.StringVar(&o.FlagFile, "flag-file", "", "path of the file with the flag in the image, or CONTAINER=PATH if there are several containers")
	f.StringVar(&o.Tag, "tag", "1", "tag of the images that are built")
	f.StringArrayVar(&o.variables, "env", nil, "value of a variable in the compose file, as in FLAG=flag{test}; goes before the file .env")
	f.StringSliceVar(&o.Profiles, "profile", nil, "profiles of the compose file to include")
	f.StringSliceVar(&o.settings, "setting", nil, "setting of the operator, as in CHALLENGE_ALLOWED_CAPABILITIES=KILL (default: the operator's default)")
	f.BoolVar(&o.Split, "split", false, "make a Challenge of each group of services that no network of the compose file connects")
	f.BoolVar(&o.AllowOutside, "allow-outside", false, "read files outside of the folder, too, as in env_file: ../common.env")
	f.BoolVar(&o.strict, "strict", false, "exit with code 4 if something could not be carried over")
	return c
}

// runImport writes the Challenge also where lint finds errors in it: the author corrects it by hand.
func (r *root) runImport(path string, o importOptions) error {
	settings, err := parseRuleSettings(o.settings)
	if err != nil {
		return err
	}
	o.Allowed = settings.Allowed
	o.Namespace = *r.flags.Namespace
	o.Environment = map[string]string{}
	for _, text := range o.variables {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return console.Errorf(console.ExitUsage, "--env: must be NAME=VALUE")
		}
		o.Environment[name] = value
	}
	result, err := r.imported(path, o.Options)
	switch {
	case errors.Is(err, importer.ErrNothing) || errors.Is(err, os.ErrNotExist):
		return console.Errorf(console.ExitNotFound, "%w", err)
	case err != nil:
		return err
	}
	text, err := importer.Write(result.Challenges)
	if err != nil {
		return err
	}
	findings := lint.Check(lint.Source{Name: "the Challenge", Content: text, Named: true}, settings).Findings
	wrong := slices.ContainsFunc(findings, func(f lint.Finding) bool { return f.Severity == lint.Error })
	if r.Format == console.JSON {
		if err := r.WriteJSON(result); err != nil {
			return err
		}
		return problemError(wrong || o.strict && len(result.Lost)+len(result.Questions) > 0)
	}
	r.Printf("%s", text)
	r.notes("Where is the flag? Without an answer, all players share the flag of the image. Answer with --flag-file PATH, or write dynamicFlag:", result.Questions)
	r.notes("Could not be carried over:", result.Lost)
	r.notes("Chosen, since the files do not say it:", result.Chosen)
	r.builds(result.Builds)
	for _, f := range findings {
		if f.Severity == lint.Error {
			r.Notef("%s: %s: %s", r.PaintErr(console.Red, "error"), f.Field, console.OneLine(f.Message))
		}
	}
	return problemError(wrong || o.strict && len(result.Lost)+len(result.Questions) > 0)
}

// imported reads a file, a folder, or standard input for -. The names of files in the last are in the current
// folder.
func (r *root) imported(path string, o importer.Options) (importer.Result, error) {
	if path != "-" {
		return importer.Import(path, o)
	}
	content, err := localfile.ReadAll(r.In)
	if err != nil {
		return importer.Result{}, console.Errorf(console.ExitFailed, "standard input: %w", err)
	}
	return importer.Content(content, o)
}

// notes writes a title only with notes below it.
func (r *root) notes(title string, all []importer.Note) {
	if len(all) == 0 {
		return
	}
	r.Notef("%s", title)
	for _, n := range all {
		r.Notef("  %s", console.OneLine(n.String()))
	}
}

// builds writes the commands that make the images, for a shell.
func (r *root) builds(all []importer.Build) {
	if len(all) == 0 {
		return
	}
	r.Notef("Build and push the images before the Challenge is used:")
	for _, b := range all {
		words := []string{"docker build --platform linux/amd64 -t", quoted(b.Image)}
		if b.Dockerfile != "" {
			words = append(words, "-f", quoted(b.Dockerfile))
		}
		if b.Target != "" {
			words = append(words, "--target", quoted(b.Target))
		}
		for _, name := range slices.Sorted(maps.Keys(b.Args)) {
			if !secretName.MatchString(name) { // docker takes a secret from the environment
				name += "=" + b.Args[name]
			}
			words = append(words, "--build-arg", quoted(name))
		}
		r.Notef("  %s", console.OneLine(strings.Join(append(words, quoted(b.Context), "&& docker push", quoted(b.Image)), " ")))
	}
}
