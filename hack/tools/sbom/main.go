// Command sbom writes the software bill of materials of a Go program, as CycloneDX:
// the modules that were linked into it, which the program itself tells.
//
//	sbom --name berg-operator --version v0.1.0 --output berg-operator.cdx.json PROGRAM
//
// The same program gives the same bytes.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
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
	name := flags.String("name", "", "what the program is called")
	version := flags.String("version", "", "its version")
	output := flags.String("output", "", "file to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || *name == "" || *version == "" || *output == "" {
		return errors.New("usage: sbom --name NAME --version VERSION --output FILE PROGRAM")
	}
	info, err := buildinfo.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	if err := encoder.EncodeVersion(bill(*name, *version, info), cdx.SpecVersion1_6); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*output), 0o750); err != nil {
		return err
	}
	return os.WriteFile(*output, text.Bytes(), 0o600)
}

// bill lists a program's modules and the standard library. There is no time in it, and
// its serial number follows from what it lists.
func bill(name, version string, info *debug.BuildInfo) *cdx.BOM {
	bom := cdx.NewBOM()
	bom.SerialNumber = uuid.NewHash(sha256.New(), uuid.NameSpaceURL, fmt.Appendf(nil, "%s %s\n%s", name, version, info), 8).URN()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: info.Main.Path, Type: cdx.ComponentTypeApplication, Name: name, Version: version,
		PackageURL: packageURL(info.Main.Path, version),
	}}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	components := []cdx.Component{{
		BOMRef: "std", Type: cdx.ComponentTypeLibrary, Name: "std", Version: goVersion, PackageURL: packageURL("std", goVersion),
	}}
	for _, module := range info.Deps {
		if module.Replace != nil && module.Replace.Version != "" { // a folder has no version: it holds what is published as the module
			module = module.Replace
		}
		components = append(components, cdx.Component{
			BOMRef: module.Path, Type: cdx.ComponentTypeLibrary, Name: module.Path, Version: module.Version,
			PackageURL: packageURL(module.Path, module.Version),
			Properties: &[]cdx.Property{{Name: "go.sum", Value: module.Sum}},
		})
	}
	bom.Components = &components
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: info.Main.Path, Dependencies: &refs}}
	return bom
}

// packageURL names a module as https://github.com/package-url/purl-spec says.
func packageURL(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}
