package build

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/bergctf/berg-operator/test/cluster/host"
)

const (
	olmModule = "github.com/operator-framework/operator-lifecycle-manager"

	// opmSource, seen from components, is the opm that make builds for catalogs: one version for both.
	opmSource = "../../../hack/tools/opm"

	// olmTags leave out signatures of images, which would need a C library.
	olmTags = "-tags=containers_image_openpgp"
	opmTags = "-tags=json1,containers_image_openpgp"

	// olmUser is the user that OLM gives to the pods it makes; its own must not be root either.
	olmUser = "1001:0"
)

// Busybox gives images the shell and the cp that OLM and operator-sdk call in them: a program without libraries, and
// the package of the distribution that holds it.
const (
	Busybox        = "busybox"
	BusyboxPackage = "busybox-static"
)

// olm builds OLM's programs and renders its manifests.
func (b *builder) olm(out string) error {
	if err := b.compile("olm", out, linkerFlags, olmTags, "tool", "./manifests"); err != nil {
		return err
	}
	if err := b.compile(opmSource, out, linkerFlags, opmTags, "tool"); err != nil {
		return err
	}
	module, err := goOutput(b.ctx, b.module("olm"), "list", "-m", "-f", "{{.Version}} {{.Dir}}", olmModule)
	if err != nil {
		return err
	}
	var version, source string
	if _, err := fmt.Sscan(module, &version, &source); err != nil {
		return fmt.Errorf("version and directory of %s: %w", olmModule, err)
	}
	cmd := exec.CommandContext(b.ctx, filepath.Join(out, "manifests"),
		"--chart", filepath.Join(source, "deploy", "chart"), "--version", version,
		"--olm-image", olmImage, "--opm-image", opmImage, "--output", out)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("render OLM's manifests: %w: %s", err, bytes.TrimSpace(output))
	}
	return os.Remove(filepath.Join(out, "manifests"))
}

// olmImages assembles the images that OLM runs: its own programs, and opm, which unpacks bundles and serves catalogs.
func (b *builder) olmImages(out string) error {
	programs, err := b.dir(OLM)
	if err != nil {
		return err
	}
	shell, err := staticBusybox()
	if err != nil {
		return err
	}
	links, err := os.MkdirTemp(out, ".links-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(links)
	for _, name := range []string{"cat", "cp", "gzip", "mkdir", "sh", "sleep", "tar"} {
		if err := os.Symlink("busybox", filepath.Join(links, name)); err != nil {
			return err
		}
	}
	base := []string{"--user", olmUser, "--dir", "/tmp:1777", shell + ":/bin/busybox:0755", links + ":/bin"}
	with := func(entrypoint string, names map[string]string) []string {
		args := append([]string{"--entrypoint", entrypoint}, base...)
		for name, source := range names {
			args = append(args, filepath.Join(programs, source)+":/bin/"+name+":0755")
		}
		return args
	}
	return b.images(out, map[string][]string{
		busyboxImage: base,
		olmImage: with("/bin/olm", map[string]string{
			"olm": "olm", "catalog": "catalog", "package-server": "package-server", "copy-content": "copy-content", "cpb": "cpb",
		}),
		opmImage: append([]string{"--label", "operators.operatorframework.io.index.configs.v1=/configs", "--dir", "/configs"},
			with("/bin/opm", map[string]string{"opm": "opm", "grpc_health_probe": "grpc-health-probe"})...),
	})
}

// staticBusybox finds a busybox that runs in an image with nothing else in it.
func staticBusybox() (string, error) {
	const remedy = "install the Debian package " + BusyboxPackage + ", or its like"
	program := host.Find(Busybox)
	if program == "" {
		return "", errors.New("there is no busybox: " + remedy)
	}
	binary, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	defer binary.Close()
	if slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return "", fmt.Errorf("%s needs libraries: %s", program, remedy)
	}
	return program, nil
}
