package main

import (
	"os"
	"testing"
)

func TestDefaultsOfThePluginAreGenerated(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../cmd/kubectl-berg/doctor/zz_generated.defaults.go")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("the plugin has other defaults than the operator: run make generate")
	}
}
