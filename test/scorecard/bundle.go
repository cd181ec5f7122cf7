package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// csv is what the checks read of a ClusterServiceVersion.
type csv struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Version string `json:"version"`
		Icon    []struct {
			Data      []byte `json:"base64data"`
			MediaType string `json:"mediatype"`
		} `json:"icon"`
		CustomResourceDefinitions struct {
			Owned []owned `json:"owned"`
		} `json:"customresourcedefinitions"`
		Install struct {
			Spec struct {
				Deployments []struct {
					Name string                `json:"name"`
					Spec appsv1.DeploymentSpec `json:"spec"`
				} `json:"deployments"`
				Permissions        []permissions `json:"permissions"`
				ClusterPermissions []permissions `json:"clusterPermissions"`
			} `json:"spec"`
		} `json:"install"`
		RelatedImages []struct {
			Image string `json:"image"`
		} `json:"relatedImages"`
	} `json:"spec"`
}

type owned struct {
	Name            string                  `json:"name"`
	Kind            string                  `json:"kind"`
	Version         string                  `json:"version"`
	DisplayName     string                  `json:"displayName"`
	Description     string                  `json:"description"`
	SpecDescriptors []struct{ Path string } `json:"specDescriptors"`
}

type permissions struct {
	ServiceAccountName string              `json:"serviceAccountName"`
	Rules              []rbacv1.PolicyRule `json:"rules"`
}

type example struct {
	APIVersion string                     `json:"apiVersion"`
	Kind       string                     `json:"kind"`
	Spec       map[string]json.RawMessage `json:"spec"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

// bundle is a bundle as it is unpacked.
type bundle struct {
	csv      csv
	manager  corev1.PodTemplateSpec
	examples []example
}

// load reads the bundle in dir.
func load(dir string) (bundle, error) {
	files, err := filepath.Glob(filepath.Join(dir, "manifests", "*.clusterserviceversion.yaml"))
	if err != nil {
		return bundle{}, err
	}
	if len(files) != 1 {
		return bundle{}, fmt.Errorf("%s: found %d ClusterServiceVersions instead of one", dir, len(files))
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return bundle{}, err
	}
	var b bundle
	if err := yaml.Unmarshal(text, &b.csv); err != nil {
		return bundle{}, fmt.Errorf("%s: %w", files[0], err)
	}
	deployments := b.csv.Spec.Install.Spec.Deployments
	if len(deployments) != 1 || len(deployments[0].Spec.Template.Spec.Containers) != 1 {
		return bundle{}, errors.New("the bundle must have one Deployment with one container")
	}
	b.manager = deployments[0].Spec.Template
	if err := json.Unmarshal([]byte(b.csv.Metadata.Annotations["alm-examples"]), &b.examples); err != nil {
		return bundle{}, fmt.Errorf("annotation alm-examples: %w", err)
	}
	return b, nil
}

// container is the operator's.
func (b bundle) container() corev1.Container {
	return b.manager.Spec.Containers[0]
}
