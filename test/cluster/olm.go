package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

const (
	olmModule = "github.com/operator-framework/operator-lifecycle-manager"

	// opmSource, seen from components, is the opm that make builds for catalogs: one version for both.
	opmSource = "../../../tools/opm"

	// olmTags leave out signatures of images, which would need a C library.
	olmTags = "-tags=containers_image_openpgp"
	opmTags = "-tags=json1,containers_image_openpgp"

	// olmUser is the user that OLM gives to the pods it makes; its own must not be root either.
	olmUser = "1001:0"
)

// busybox gives images the shell and the cp that OLM and operator-sdk call in them.
var busybox = distributed{"busybox-static", "busybox"}

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
	programs, err := b.dir(olm)
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
	const remedy = "install the Debian package busybox-static, or its like"
	program := findProgram(busybox.path)
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

// installOLM applies OLM, and does not wait for its pods.
func (c *cluster) installOLM(ctx context.Context, api *apiClient, progress *progress) error {
	return progress.step("Operator Lifecycle Manager applied", func(func(string)) error {
		definitions, err := readDefinitions(c.binary(olm.name, "crds/*.yaml"))
		if err != nil {
			return err
		}
		if err := c.define(ctx, api, definitions); err != nil {
			return err
		}
		manifest, err := os.ReadFile(c.binary(olm.name, "olm.yaml"))
		if err != nil {
			return err
		}
		return c.apply(ctx, string(manifest))
	})
}

// olmReady wants OLM's programs to run and its API of packages to answer.
func (a *apiClient) olmReady(ctx context.Context) error {
	for _, name := range []string{"olm-operator", "catalog-operator", "packageserver"} {
		if err := a.deploymentReady(ctx, "olm", name); err != nil {
			return err
		}
	}
	var csv struct {
		Status struct {
			Phase   string `json:"phase"`
			Message string `json:"message"`
		} `json:"status"`
	}
	if err := a.get(ctx, "/apis/operators.coreos.com/v1alpha1/namespaces/olm/clusterserviceversions/packageserver", &csv); err != nil {
		return err
	}
	if csv.Status.Phase != "Succeeded" {
		return fmt.Errorf("the ClusterServiceVersion olm/packageserver is %s: %s", csv.Status.Phase, csv.Status.Message)
	}
	var service struct {
		Status struct {
			Conditions []condition `json:"conditions"`
		} `json:"status"`
	}
	if err := a.get(ctx, "/apis/apiregistration.k8s.io/v1/apiservices/v1.packages.operators.coreos.com", &service); err != nil {
		return err
	}
	if !holds(service.Status.Conditions, "Available") {
		return errors.New("the API packages.operators.coreos.com is not available")
	}
	return nil
}
