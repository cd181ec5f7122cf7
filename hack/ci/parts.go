package main

import (
	"context"
	"slices"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/disk"
	"github.com/bergctf/berg-operator/test/cluster/kube"
)

// partsOf lists what the profiles of test/cluster are built from.
func partsOf(profiles ...string) []string {
	var names []string
	for _, profile := range profiles {
		for _, part := range kube.PartsOf(profile) {
			if !slices.Contains(names, part.Name) {
				names = append(names, part.Name)
			}
		}
	}
	return names
}

// missingParts lists those parts of the profiles that the cache of test/cluster does not hold yet.
func missingParts(ctx context.Context, profiles ...string) ([]string, error) {
	places, err := disk.Find()
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, profile := range profiles {
		for _, part := range kube.PartsOf(profile) {
			dir, err := build.Dir(ctx, places, part)
			if err != nil {
				return nil, err
			}
			if !disk.Exists(dir) && !slices.Contains(missing, part.Name) {
				missing = append(missing, part.Name)
			}
		}
	}
	return missing, nil
}
