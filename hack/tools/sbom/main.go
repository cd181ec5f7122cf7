// Command sbom writes the software bill of materials of an image with Go programs, as CycloneDX: the modules that are linked
// into them, as the programs record them, with their licences. It also writes the notices of these licences, which most of
// them require next to a program.
//
//	sbom --name berg-operator --version v0.1.0 --output berg-operator.cdx.json --notices NOTICES.txt PROGRAM...
//
// The same programs give the same bytes.
package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "sbom: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	name := flags.String("name", "", "what the image is called")
	version := flags.String("version", "", "its version")
	output := flags.String("output", "", "file to write")
	notices := flags.String("notices", "", "file to write with the texts of the licences")
	own := flags.String("license", filepath.Join("..", "..", "..", "LICENSE"), "file with the licence of the programs themselves")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *name == "" || *version == "" || *output == "" {
		return errors.New("usage: sbom --name NAME --version VERSION --output FILE [--notices FILE] PROGRAM, and more of them")
	}
	var programs []*debug.BuildInfo
	for _, file := range flags.Args() {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return err
		}
		programs = append(programs, info)
	}
	folders, err := findFolders(*own)
	if err != nil {
		return err
	}
	bom, texts, err := bill(*name, *version, programs, folders)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return err
	}
	if err := write(*output, text.Bytes()); err != nil || *notices == "" {
		return err
	}
	return write(*notices, []byte(texts))
}

func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// bill lists the modules of programs and the standard library, and returns the notices of their licences. There is no time in
// it, and its serial number follows from its content.
func bill(name, version string, programs []*debug.BuildInfo, folders folders) (*cdx.BOM, string, error) {
	first := programs[0]
	bom := cdx.NewBOM()
	bom.SerialNumber = uuid.NewHash(sha256.New(), uuid.NameSpaceURL, fmt.Appendf(nil, "%s %s\n%s", name, version, programs), 8).URN()
	ownLicences, own, err := readLicences(folders.own)
	if err != nil {
		return nil, "", err
	}
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: first.Main.Path, Type: cdx.ComponentTypeApplication, Name: name, Version: version,
		PackageURL: packageURL(first.Main.Path, version), Licenses: ownLicences,
	}}
	goVersion := strings.TrimPrefix(first.GoVersion, "go")
	licences, texts, err := readLicences(filepath.Join(folders.goroot, "LICENSE"))
	if err != nil {
		return nil, "", err
	}
	notices := notices{}
	notices.add(name+" "+version, own)
	notices.add("Go "+goVersion, texts)
	components := []cdx.Component{{
		BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: goVersion, PackageURL: packageURL("std", goVersion), Licenses: licences,
	}}
	for _, module := range linkedModules(programs) {
		found := folders.own // a folder of this tree has no version: it holds what is published as the module
		if module.Sum != "" {
			if found, err = folders.find(module); err != nil {
				return nil, "", err
			}
		}
		licences, texts, err := readLicences(found)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", module.Path, err)
		}
		notices.add(module.Path+" "+module.Version, texts)
		components = append(components, cdx.Component{
			BOMRef: module.Path, Type: cdx.ComponentTypeLibrary, Name: module.Path, Version: module.Version,
			PackageURL: packageURL(module.Path, module.Version), Licenses: licences,
			Properties: &[]cdx.Property{{Name: "go.sum", Value: module.Sum}},
		})
	}
	bom.Components = &components
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: first.Main.Path, Dependencies: &refs}}
	return bom, notices.String(), nil
}

// linkedModules returns the modules of all programs, each once, by path.
func linkedModules(programs []*debug.BuildInfo) (all []*debug.Module) {
	known := map[string]bool{}
	for _, program := range programs {
		for _, module := range program.Deps {
			if module.Replace != nil && module.Replace.Version != "" { // a folder has no version
				module = module.Replace
			}
			if key := module.Path + "@" + module.Version; !known[key] {
				known[key] = true
				all = append(all, module)
			}
		}
	}
	slices.SortFunc(all, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	return all
}

// packageURL names a module as https://github.com/package-url/purl-spec says.
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}
