package build

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bergctf/berg-operator/test/cluster/host"
)

// Kafka is the broker: a directory of jars. It is not part of a cluster; package broker of
// test/lib runs it next to one.
var Kafka = &Part{
	Name:    "kafka",
	sources: []string{"kafka"},
	recipe:  copyDependencies,
	build:   (*builder).kafka,
}

// KafkaPackages are those of Debian by which the broker is built and run.
var KafkaPackages = host.Packages{"default-jre-headless": {"java"}, "maven": {"mvn"}}

// copyDependencies is the step of Maven that downloads jars and copies them.
const copyDependencies = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"

// kafka has Maven download the broker's jars, and compares them with the sums that are kept.
func (b *builder) kafka(out string) error {
	if missing := KafkaPackages.Missing(); len(missing) > 0 {
		return fmt.Errorf("missing: %s: run hack/packages kafka, or install a Java 17 or newer and Maven", strings.Join(missing, ", "))
	}
	b.detail("downloading jars")
	cmd := exec.CommandContext(b.ctx, host.Find("mvn"), "--batch-mode", "--quiet", "--strict-checksums",
		"--file", filepath.Join(b.module("kafka"), "pom.xml"), copyDependencies, "-DincludeScope=runtime", "-DoutputDirectory="+out)
	if output, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		return fmt.Errorf("mvn: %w: %s", err, strings.Join(lines[:min(len(lines), 10)], "\n"))
	}
	kept, err := os.ReadFile(filepath.Join(b.module("kafka"), "jars.sha256"))
	if err != nil {
		return err
	}
	return compareSums(out, string(kept))
}

// compareSums wants a directory to hold exactly the files of a list as sha256sum writes it.
func compareSums(dir, kept string) error {
	var wrong []error
	want := map[string]string{}
	for line := range strings.Lines(kept) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return fmt.Errorf("a line of the sums is %q", line)
		}
		want[name] = sum
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		expected, listed := want[entry.Name()]
		kept, decodeErr := hex.DecodeString(expected)
		switch {
		case !listed:
			wrong = append(wrong, fmt.Errorf("%s is not expected", entry.Name()))
		case decodeErr != nil || !bytes.Equal(sum[:], kept):
			wrong = append(wrong, fmt.Errorf("%s is not the file that was kept the sum of", entry.Name()))
		}
		delete(want, entry.Name())
	}
	for name := range want {
		wrong = append(wrong, fmt.Errorf("%s is missing", name))
	}
	slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(wrong...)
}
