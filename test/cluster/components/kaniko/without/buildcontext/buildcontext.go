// Package buildcontext stands in for kaniko's ways to fetch what it builds from. Here that is a directory.
package buildcontext

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/chainguard-dev/kaniko/pkg/constants"
)

// TarBuildContextPrefix is that of contexts which are an archive.
const TarBuildContextPrefix = "tar://"

// BuildOptions are about contexts that are repositories.
type BuildOptions struct {
	GitBranch                                              string
	GitSingleBranch, GitRecurseSubmodules, InsecureSkipTLS bool
}

// BuildContext is where a build finds its files.
type BuildContext interface {
	// UnpackTarFromBuildContext returns the directory.
	UnpackTarFromBuildContext() (string, error)
}

type directory string

// GetBuildContext knows directories.
func GetBuildContext(source string, _ BuildOptions) (BuildContext, error) {
	path, found := strings.CutPrefix(source, constants.LocalDirBuildContextPrefix)
	if !found {
		return nil, fmt.Errorf("this kaniko is built for directories, and %q is none", source)
	}
	return directory(path), nil
}

func (d directory) UnpackTarFromBuildContext() (string, error) { return string(d), nil }

// UploadToBucket has nowhere to go.
func UploadToBucket(io.Reader, string) error {
	return errors.New("this kaniko is built without buckets")
}
