package kube

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/bergctf/berg-operator/test/cluster/build"
	"github.com/bergctf/berg-operator/test/cluster/client"
	"github.com/bergctf/berg-operator/test/cluster/host"
	"github.com/bergctf/berg-operator/test/cluster/progress"
)

// olmProfile has the Operator Lifecycle Manager on the node.
func olmProfile() profile {
	return profile{
		name:     ProfileOLM,
		parts:    []*build.Part{build.OLM, build.OLMImages},
		packages: host.Packages{build.BusyboxPackage: {build.Busybox}},
		images:   []*build.Part{build.OLMImages},
		install:  installOLM,
		checks:   []func(context.Context, *Cluster, *client.Client) error{olmReady},
		ready:    "Operator Lifecycle Manager ready", suspect: "kubelet",
	}
}

// installOLM applies OLM, and does not wait for its pods.
func installOLM(ctx context.Context, c *Cluster, api *client.Client, show *progress.Progress) error {
	return show.Step("Operator Lifecycle Manager applied", func(func(string)) error {
		definitions, err := client.ReadDefinitions(c.binary(build.OLM.Name, "crds/*.yaml"))
		if err != nil {
			return err
		}
		if err := c.define(ctx, api, definitions); err != nil {
			return err
		}
		manifest, err := os.ReadFile(c.binary(build.OLM.Name, "olm.yaml"))
		if err != nil {
			return err
		}
		return c.apply(ctx, string(manifest))
	})
}

// olmReady wants OLM's programs to run and its API of packages to answer.
func olmReady(ctx context.Context, _ *Cluster, api *client.Client) error {
	for _, name := range []string{"olm-operator", "catalog-operator", "packageserver"} {
		if err := api.DeploymentReady(ctx, "olm", name); err != nil {
			return err
		}
	}
	var csv struct {
		Status struct {
			Phase   string `json:"phase"`
			Message string `json:"message"`
		} `json:"status"`
	}
	if err := api.Get(ctx, "/apis/operators.coreos.com/v1alpha1/namespaces/olm/clusterserviceversions/packageserver", &csv); err != nil {
		return err
	}
	if csv.Status.Phase != "Succeeded" {
		return fmt.Errorf("the ClusterServiceVersion olm/packageserver is %s: %s", csv.Status.Phase, csv.Status.Message)
	}
	var service struct {
		Status struct {
			Conditions []client.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := api.Get(ctx, "/apis/apiregistration.k8s.io/v1/apiservices/v1.packages.operators.coreos.com", &service); err != nil {
		return err
	}
	if !client.Holds(service.Status.Conditions, "Available") {
		return errors.New("the API packages.operators.coreos.com is not available")
	}
	return nil
}
