package build

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/host"
)

// Parts of profile tekton.
var (
	Tekton = &Part{
		Name:    "tekton",
		sources: []string{"tekton"},
		recipe:  "controller, webhook, what they put into pods; " + tektonImages,
		build:   (*builder).tekton,
	}
	TektonImages = &Part{
		Name:    "tekton-images",
		sources: []string{"tekton", "image"},
		recipe:  tektonImages,
		needs:   []*Part{ImageTool, Tekton},
		build:   (*builder).tektonImages,
	}
	Kaniko = &Part{
		Name:    "kaniko",
		sources: []string{"kaniko"},
		recipe:  "without clouds",
		build: func(b *builder, out string) error {
			return b.compileWithout("kaniko", out, kanikoWithout, "tool")
		},
	}
	Distribution = &Part{
		Name:    "distribution",
		sources: []string{"distribution"},
		build: func(b *builder, out string) error {
			return b.compile("distribution", out, linkerFlags, "tool")
		},
	}
	BuildImages = &Part{
		Name:    "build-images",
		sources: []string{"kaniko", "distribution", "image"},
		recipe:  strings.Join([]string{KanikoImage, DistributionImage, GitImage, BaseImage, baseTools, largeFiles, strings.Join(gitScripts, " ")}, " "),
		needs:   []*Part{ImageTool, Kaniko, Distribution},
		build:   (*builder).buildImages,
	}
	GitServer = &Part{
		Name:    "gitserver",
		sources: []string{"gitserver"},
		build: func(b *builder, out string) error {
			return b.compile("gitserver", out, linkerFlags, ".")
		},
	}
)

// Images that builds of images are made with, and from.
const (
	KanikoImage = "registry.berg.test/kaniko:1"
	GitImage    = "registry.berg.test/git:1"
	// DistributionImage is a registry that specs start, in addition to the one of the cluster.
	DistributionImage = "registry.berg.test/distribution:1"
	// BaseImage is what a Dockerfile begins with: a shell, and the users without which no RUN starts.
	BaseImage = "registry.berg.test/base:1"

	// baseTools are what busybox is called by in it.
	baseTools = "basename cat chmod chown cp dirname env expr find grep httpd id ln ls mkdir rm sed sh sleep tail tar test touch tr true uname wget"

	tektonModule = "github.com/tektoncd/pipeline"
	// tektonImages begins the names of Tekton's.
	tektonImages = "registry.berg.test/tekton"
	tektonUser   = "65532:65532"
)

// GitPackages are those of Debian whose files the image of git is made of.
var GitPackages = host.Packages{"git": {"git", gitFolder + "/git-remote-http", GitBackend}, largeFiles: {largeFiles}}

const (
	gitFolder = "/usr/lib/git-core"
	// GitBackend serves repositories over HTTP.
	GitBackend = gitFolder + "/git-http-backend"
	// largeFiles is the program of Git LFS, and the package of it.
	largeFiles = "git-lfs"
)

// kanikoWithout are packages that call services of clouds, and are half of what there is to compile.
var kanikoWithout = []cut{
	{"github.com/chainguard-dev/kaniko", "pkg/creds", "creds"},
	{"github.com/chainguard-dev/kaniko", "pkg/buildcontext", "buildcontext"},
}

// tekton builds Tekton's programs, and puts its manifests together: those that its release has, but the resolvers,
// the sender of events and the autoscaler, which nothing here asks for.
func (b *builder) tekton(out string) error {
	if err := b.compile("tekton", out, linkerFlags, "tool"); err != nil {
		return err
	}
	module, err := goOutput(b.ctx, b.module("tekton"), "list", "-m", "-f", "{{.Version}} {{.Dir}}", tektonModule)
	if err != nil {
		return err
	}
	var version, source string
	if _, err := fmt.Sscan(module, &version, &source); err != nil {
		return fmt.Errorf("version and directory of %s: %w", tektonModule, err)
	}
	definitions, err := filepath.Glob(filepath.Join(source, "config", "300-crds", "*.yaml"))
	if err != nil {
		return err
	}
	others, err := filepath.Glob(filepath.Join(source, "config", "*.yaml"))
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, func(file string) bool {
		return slices.Contains([]string{"events.yaml", "webhook-hpa.yaml"}, filepath.Base(file))
	})
	namespaces, err := filepath.Glob(filepath.Join(source, "config", "100-namespace", "*.yaml"))
	if err != nil {
		return err
	}
	if len(definitions) == 0 || len(others) == 0 || len(namespaces) == 0 {
		return fmt.Errorf("%s has no definitions, manifests or namespace in config: have they moved?", tektonModule)
	}
	if err := os.Mkdir(filepath.Join(out, "crds"), 0o755); err != nil {
		return err
	}
	for _, file := range definitions {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := disk.WriteFile(filepath.Join(out, "crds", filepath.Base(file)), tektonManifest(content, version), 0o644); err != nil {
			return err
		}
	}
	var all bytes.Buffer
	for _, file := range append(namespaces, others...) {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		all.WriteString("---\n")
		all.Write(tektonManifest(content, version))
	}
	if bytes.Contains(all.Bytes(), []byte("ko://")) {
		return fmt.Errorf("an image of %s has no name here", tektonModule)
	}
	return disk.WriteFile(filepath.Join(out, "tekton.yaml"), all.Bytes(), 0o644)
}

var (
	// koReference is where a release puts the name of an image.
	koReference = regexp.MustCompile(`ko://github\.com/tektoncd/pipeline/cmd/([a-z]+)`)
	// shellImage is one that the release takes from elsewhere, by a digest.
	shellImage = regexp.MustCompile(`"-shell-image", "[^"]+"`)
)

// tektonManifest does to a file what a release does.
func tektonManifest(content []byte, version string) []byte {
	content = koReference.ReplaceAll(content, []byte(tektonImages+"/$1:1"))
	content = shellImage.ReplaceAll(content, []byte(`"-shell-image", "`+BaseImage+`"`))
	return bytes.ReplaceAll(content, []byte(`"devel"`), []byte(`"`+version+`"`))
}

// tektonImages assembles an image for each of Tekton's programs, at the path that its manifests have.
func (b *builder) tektonImages(out string) error {
	programs, err := b.dir(Tekton)
	if err != nil {
		return err
	}
	all := map[string][]string{}
	for _, name := range []string{"controller", "webhook", "entrypoint", "nop", "workingdirinit"} {
		path := "/ko-app/" + name
		all[tektonImages+"/"+name+":1"] = []string{
			"--user", tektonUser, "--dir", "/tmp:1777", "--entrypoint", path, filepath.Join(programs, name) + ":" + path + ":0755",
		}
	}
	return b.images(out, all)
}

// buildImages assembles what clones, what builds, and what is built upon.
func (b *builder) buildImages(out string) error {
	kaniko, err := b.dir(Kaniko)
	if err != nil {
		return err
	}
	distribution, err := b.dir(Distribution)
	if err != nil {
		return err
	}
	shell, err := staticBusybox()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(out, ".work-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	links := filepath.Join(work, "links")
	if err := os.Mkdir(links, 0o755); err != nil {
		return err
	}
	for name := range strings.FieldsSeq(baseTools) {
		if err := os.Symlink("busybox", filepath.Join(links, name)); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"passwd":   "root:x:0:0:root:/root:/bin/sh\nnonroot:x:65532:65532:nonroot:/home:/bin/sh\n",
		"group":    "root:x:0:\nnonroot:x:65532:\n",
		"nsswitch": "hosts: files dns\n",
	} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	users := []string{filepath.Join(work, "passwd") + ":/etc/passwd:0644", filepath.Join(work, "group") + ":/etc/group:0644"}
	base := slices.Concat([]string{"--dir", "/tmp:1777", shell + ":/bin/busybox:0755", links + ":/bin"}, users)
	git, err := b.gitFiles()
	if err != nil {
		return err
	}
	gitLinks := filepath.Join(work, "git")
	if err := os.Mkdir(gitLinks, 0o755); err != nil {
		return err
	}
	if err := os.Symlink("git-remote-http", filepath.Join(gitLinks, "git-remote-https")); err != nil {
		return err
	}
	return b.images(out, map[string][]string{
		BaseImage: append([]string{"--user", "0:0", "--env", "PATH=/bin"}, base...),
		GitImage: slices.Concat([]string{
			"--user", tektonUser, "--env", "PATH=/usr/bin:/bin", "--dir", "/usr/share/git-core/templates",
		}, base, []string{gitLinks + ":" + gitFolder}, git),
		DistributionImage: {
			"--user", tektonUser, "--entrypoint", "/registry", "--dir", "/tmp:1777", filepath.Join(distribution, "registry") + ":/registry:0755",
		},
		KanikoImage: slices.Concat([]string{
			"--user", "0:0", "--entrypoint", "/kaniko/executor", "--dir", "/kaniko:0777", "--dir", "/kaniko/ssl/certs", "--dir", "/workspace:0777", "--dir", "/root:0700",
			"--env", "HOME=/root", "--env", "USER=root", "--env", "PATH=/usr/local/bin:/kaniko", "--env", "SSL_CERT_DIR=/kaniko/ssl/certs",
			"--env", "DOCKER_CONFIG=/kaniko/.docker/",
			filepath.Join(kaniko, "executor") + ":/kaniko/executor:0755", filepath.Join(work, "nsswitch") + ":/etc/nsswitch.conf:0644",
		}, users),
	})
}

// gitScripts are what submodules need of git.
var gitScripts = []string{gitFolder + "/git-submodule", gitFolder + "/git-sh-setup", gitFolder + "/git-sh-i18n"}

// gitFiles are the distribution's git and the libraries that it loads, as arguments of the tool for images.
func (b *builder) gitFiles() ([]string, error) {
	files := map[string]string{}
	for _, script := range gitScripts {
		files[script] = script
	}
	programs := map[string]string{gitFolder + "/git-remote-http": gitFolder + "/git-remote-http"}
	for _, name := range []string{"git", largeFiles} {
		path := host.Find(name)
		if path == "" {
			return nil, fmt.Errorf("there is no %[1]s: install the Debian package %[1]s, or its like", name)
		}
		programs[path] = "/usr/bin/" + name
	}
	maps.Copy(files, programs)
	for program := range programs {
		out, err := exec.CommandContext(b.ctx, "ldd", program).Output()
		if err != nil {
			return nil, fmt.Errorf("ldd %s: %w", program, err)
		}
		for _, library := range libraries(string(out)) {
			files[library] = library
		}
	}
	var args []string
	for source, destination := range files {
		resolved, err := filepath.EvalSymlinks(source)
		if err != nil {
			return nil, err
		}
		args = append(args, resolved+":"+destination+":0755")
	}
	slices.Sort(args)
	return args, nil
}

// libraries are the files that ldd names: those behind an arrow, and the loader, which has none.
func libraries(ldd string) []string {
	var files []string
	for line := range strings.Lines(ldd) {
		if _, found, arrow := strings.Cut(line, "=> "); arrow {
			line = found
		}
		file, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(file, "/") {
			files = append(files, file)
		}
	}
	return files
}
