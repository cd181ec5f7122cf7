// Package build fills the cache with what clusters are made of: parts, each a directory that is built once for each
// state of its sources, from the modules below components.
//
// To add a component, give it a module of its own there, and declare a Part here that says what its sources are and how
// it is built; a profile of package kube then names the part.
package build

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

// Part is one entry of the cache: a directory that is filled once for each state of its sources.
type Part struct {
	// Name is the part's, and the beginning of its directory's.
	Name string
	// sources are files and directories below components/ of which the content decides whether to build again.
	sources []string
	// modules of the repository's own go.mod of which the version decides as well.
	modules []string
	// recipe is everything else that decides, such as compiler flags.
	recipe string
	// needs are built first.
	needs []*Part
	build func(b *builder, out string) error
}

const (
	compilerFlags = "-trimpath -buildvcs=false"
	linkerFlags   = "-s -w"
)

// The parts a cluster is made of. Versions are those of the go.mod files and stand nowhere else.
var (
	ControlPlane = &Part{
		Name:    "control-plane",
		sources: []string{kubernetes},
		recipe:  "everything but the node's programs",
		build: func(b *builder, out string) error {
			if err := b.kubernetes(out, func(program string) bool { return !slices.Contains(nodePrograms, program) }); err != nil {
				return err
			}
			// A main package in a folder called server: go build names the binary after it.
			return os.Rename(filepath.Join(out, "server"), filepath.Join(out, "etcd"))
		},
	}
	NodeAgents = &Part{
		Name:    "node",
		sources: []string{kubernetes},
		recipe:  strings.Join(nodePrograms, " "),
		build: func(b *builder, out string) error {
			return b.kubernetes(out, func(program string) bool { return slices.Contains(nodePrograms, program) })
		},
	}
	Kwok = &Part{
		Name:    "kwok",
		sources: []string{"kwok"},
		recipe:  "with stages",
		build:   (*builder).kwok,
	}
	ImageTool = &Part{
		Name:    "image",
		sources: []string{"image"},
		build: func(b *builder, out string) error {
			return b.compile("image", out, linkerFlags, ".", "./pause")
		},
	}
	CoreDNS = &Part{
		Name:    "coredns",
		sources: []string{"coredns"},
		build: func(b *builder, out string) error {
			return b.compile("coredns", out, linkerFlags, ".")
		},
	}
	SystemImages = &Part{
		Name:    "images",
		sources: []string{"image", "coredns"},
		recipe:  PauseImage + " " + CoreDNSImage,
		needs:   []*Part{ImageTool, CoreDNS},
		build:   (*builder).systemImages,
	}
	OLM = &Part{
		Name:    "olm",
		sources: []string{"olm", opmSource},
		recipe:  olmTags + " " + opmTags + " " + olmImage + " " + opmImage,
		build:   (*builder).olm,
	}
	OLMImages = &Part{
		Name:    "olm-images",
		sources: []string{"olm", opmSource, "image"},
		recipe:  strings.Join([]string{olmTags, opmTags, olmImage, opmImage, busyboxImage}, " "),
		needs:   []*Part{ImageTool, OLM},
		build:   (*builder).olmImages,
	}
	OptionalAPIs = &Part{
		Name:    "crds",
		modules: []string{ciliumModule, gatewayModule},
		recipe:  "ciliumnetworkpolicies, gateway experimental",
		build:   (*builder).optionalAPIs,
	}
)

// kubernetes is the module of Kubernetes and etcd. BERG_CLUSTER_KUBERNETES chooses an older minor version: components has one for each
// version that make test-versions runs.
var kubernetes = kubernetesModule(os.Getenv("BERG_CLUSTER_KUBERNETES"))

func kubernetesModule(minor string) string {
	if minor == "" {
		return "kubernetes"
	}
	return "kubernetes-" + minor
}

var nodePrograms = []string{"kubelet", "kube-proxy"}

// Images that only ever live in a cluster's own registry: ".test" is reserved for that (RFC 2606).
const (
	PauseImage   = "registry.berg.test/pause:1"
	CoreDNSImage = "registry.berg.test/coredns:1"
)

const (
	ciliumModule  = "github.com/cilium/cilium"
	gatewayModule = "sigs.k8s.io/gateway-api"

	olmImage = "registry.berg.test/olm:1"
	opmImage = "registry.berg.test/opm:1"
	// Where operator-sdk run bundle-upgrade expects a shell; no option names another image.
	busyboxImage = "registry.access.redhat.com/ubi9/ubi:9.7"
)

// One returns the directory of a part and fills it first where it does not exist.
// Of several runners that want the same part, one builds and the others wait for it.
func One(ctx context.Context, p disk.Places, part *Part, show *progress.Progress) (string, error) {
	dir, err := Dir(ctx, p, part)
	if err != nil {
		return "", err
	}
	if disk.Exists(dir) {
		return dir, nil
	}
	for _, need := range part.needs {
		if _, err := One(ctx, p, need, show); err != nil {
			return "", err
		}
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("go is not in PATH: install Go %s or newer", strings.TrimPrefix(runtime.Version(), "go"))
	}

	locks := filepath.Join(p.Binaries, ".locks", part.Name)
	err = os.MkdirAll(locks, 0o755)
	if err == nil {
		const writable = 2 // W_OK of access(2)
		err = syscall.Access(p.Binaries, writable)
	}
	if err != nil {
		return "", fmt.Errorf(`%s is not built yet and %s cannot be written: %w: let its owner run "cluster build", or set BERG_CLUSTER_BIN`, part.Name, p.Binaries, err)
	}
	err = show.Step("building "+part.Name, func(detail func(string)) error {
		lock, err := disk.AwaitLock(ctx, locks, detail)
		if err != nil {
			return err
		}
		defer lock.Release()
		if disk.Exists(dir) {
			return nil
		}
		return fill(ctx, p, part, dir, detail)
	})
	if err != nil {
		return "", fmt.Errorf("build %s: %w", part.Name, err)
	}
	return dir, nil
}

// fill builds into a directory of its own and renames it: what has the final name is complete.
func fill(ctx context.Context, p disk.Places, part *Part, dir string, detail func(string)) error {
	// Under the lock, so what is there was left by a runner that was killed.
	unfinished, err := filepath.Glob(filepath.Join(p.Binaries, ".unfinished-"+part.Name+"-*"))
	if err != nil {
		return err
	}
	for _, old := range unfinished {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	out, err := os.MkdirTemp(p.Binaries, ".unfinished-"+part.Name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	if err := os.Chmod(out, 0o755); err != nil {
		return err
	}
	if err := part.build(&builder{ctx: ctx, places: p, detail: detail}, out); err != nil {
		return err
	}
	return os.Rename(out, dir)
}

// Dir returns where a part lies in the cache. It is not there before the part is built.
func Dir(ctx context.Context, p disk.Places, part *Part) (string, error) {
	key, err := Key(ctx, p, part)
	return filepath.Join(p.Binaries, part.Name+"-"+key), err
}

// Key identifies everything that decides what a part is built into.
func Key(ctx context.Context, p disk.Places, part *Part) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, part.Name, part.recipe, compilerFlags, linkerFlags, runtime.Version(), runtime.GOARCH)
	for _, source := range part.sources {
		if err := hashTree(h, filepath.Join(p.Components, source)); err != nil {
			return "", err
		}
	}
	if len(part.modules) > 0 {
		args := append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}"}, part.modules...)
		versions, err := goOutput(ctx, p.Repository, args...)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, versions)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// hashTree adds names and content of all files that a build reads: not the tests, not the prose.
func hashTree(h hash.Hash, root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".md") {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", filepath.ToSlash(name), len(content))
		h.Write(content)
		return nil
	})
}

// builder is one build under way.
type builder struct {
	ctx    context.Context
	places disk.Places
	detail func(string)
}

func (b *builder) module(name string) string { return filepath.Join(b.places.Components, name) }

// dir returns where a part that was built before lies.
func (b *builder) dir(part *Part) (string, error) {
	return Dir(b.ctx, b.places, part)
}

// kubernetes builds those tools of the kubernetes module of which the program name is wanted.
func (b *builder) kubernetes(out string, wanted func(program string) bool) error {
	module := b.module(kubernetes)
	version, err := goOutput(b.ctx, module, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	tools, err := goOutput(b.ctx, module, "list", "tool")
	if err != nil {
		return err
	}
	packages := slices.DeleteFunc(strings.Fields(tools), func(pkg string) bool { return !wanted(filepath.Base(pkg)) })

	// Without these a release calls itself v0.0.0-master, which clients and kubelets compare with their own.
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	flags := linkerFlags
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, version, major, minor)
	}
	return b.compile(kubernetes, out, flags, packages...)
}

func (b *builder) kwok(out string) error {
	if err := b.compile("kwok", out, linkerFlags, "tool"); err != nil {
		return err
	}
	source, err := goOutput(b.ctx, b.module("kwok"), "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	if err != nil {
		return err
	}
	stages := filepath.Join(out, "stages")
	for _, file := range []string{
		"node/fast/node-initialize.yaml",
		"node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
		"pod/fast/pod-ready.yaml",
		"pod/fast/pod-complete.yaml",
		"pod/fast/pod-delete.yaml",
	} {
		if err := disk.CopyFile(filepath.Join(stages, filepath.Base(file)), filepath.Join(source, "kustomize", "stage", file)); err != nil {
			return err
		}
	}
	return nil
}

// systemImages assembles the images without which no pod runs.
func (b *builder) systemImages(out string) error {
	image, err := b.dir(ImageTool)
	if err != nil {
		return err
	}
	dns, err := b.dir(CoreDNS)
	if err != nil {
		return err
	}
	return b.images(out, map[string][]string{
		PauseImage:   {"--entrypoint", "/pause", filepath.Join(image, "pause") + ":/pause:0755"},
		CoreDNSImage: {"--entrypoint", "/coredns", filepath.Join(dns, "coredns") + ":/coredns:0755"},
	})
}

// images assembles images, given by name and the arguments that say what is in them.
func (b *builder) images(out string, images map[string][]string) error {
	tool, err := b.dir(ImageTool)
	if err != nil {
		return err
	}
	for ref, content := range images {
		file := path.Base(ref)
		file, _, _ = strings.Cut(file, ":")
		args := []string{"build", "--platform", "linux/" + runtime.GOARCH, "--ref", ref, "--output", filepath.Join(out, file+".tar")}
		cmd := exec.CommandContext(b.ctx, filepath.Join(tool, "image"), append(args, content...)...)
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("image build: %w: %s", err, bytes.TrimSpace(output))
		}
	}
	return nil
}

// optionalAPIs collects the definitions of APIs that belong to other projects, one directory each.
func (b *builder) optionalAPIs(out string) error {
	for _, api := range []struct{ name, module, files string }{
		// The policies alone: the other sixteen are Cilium's own book-keeping, which its agent needs and we do not,
		// and would double the time that all of this takes.
		{"cilium", ciliumModule, "pkg/k8s/apis/cilium.io/client/crds/v2/ciliumnetworkpolicies.yaml"},
		// Experimental: it serves every version of TLSRoute that gateways in the field still watch.
		{"gateway", gatewayModule, "config/crd/experimental/*.yaml"},
	} {
		b.detail("downloading " + api.module)
		if _, err := goOutput(b.ctx, b.places.Repository, "mod", "download", api.module); err != nil {
			return err
		}
		source, err := goOutput(b.ctx, b.places.Repository, "list", "-m", "-f", "{{.Dir}}", api.module)
		if err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(source, api.files))
		if err != nil {
			return err
		}
		copied := 0
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			// The folder also has a kustomization, and a policy that refuses the experimental channel.
			if !bytes.Contains(content, []byte("\nkind: CustomResourceDefinition\n")) {
				continue
			}
			if err := disk.CopyFile(filepath.Join(out, api.name, filepath.Base(file)), file); err != nil {
				return err
			}
			copied++
		}
		if copied == 0 {
			return fmt.Errorf("%s holds no CustomResourceDefinition: has %s moved them?", filepath.Join(source, api.files), api.module)
		}
	}
	return nil
}

// compile runs go build in one of the component modules.
func (b *builder) compile(module, out, ldflags string, packages ...string) error {
	args := buildArguments(out, ldflags)
	return b.run(module, goCommand(b.ctx, b.module(module), append(args, packages...)...))
}

func buildArguments(out, ldflags string) []string {
	args := append([]string{"build", "-v"}, strings.Fields(compilerFlags)...)
	return append(args, "-ldflags", ldflags, "-o", out+string(filepath.Separator))
}

// run runs a go build -v and reports what it is at.
func (b *builder) run(module string, cmd *exec.Cmd) error {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}

	var (
		compiled, downloaded int
		other                []string
	)
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// With -v, go build prints the path of each package that it compiles, and nothing else that has no blank.
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "go: downloading"):
			downloaded++
			b.detail(fmt.Sprintf("%d modules downloaded", downloaded))
		case !strings.ContainsAny(line, " \t"):
			compiled++
			b.detail(fmt.Sprintf("%d packages compiled, at %s", compiled, line))
		default:
			other = append(other, line)
		}
	}
	_, _ = io.Copy(io.Discard, stderr)
	if err := cmd.Wait(); err != nil {
		if b.ctx.Err() != nil {
			return context.Cause(b.ctx)
		}
		return fmt.Errorf("go build in %s: %w\n%s", b.module(module), err, strings.Join(other[max(0, len(other)-20):], "\n"))
	}
	return nil
}

// goCommand runs the go tool for this machine, in the module of dir and nothing around it.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+runtime.GOARCH, "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	// Asked first, so that the compilers it has started end with it.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := goCommand(ctx, dir, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
