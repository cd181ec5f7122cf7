// Package installed puts what config/default installs onto a cluster, without the operator
// itself, for programs that start the operator as a process of their own.
package installed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names that config/default gives to the operator's namespace and ServiceAccount.
const (
	Namespace = "berg-operator-system"
	Account   = "berg-operator-controller-manager"
)

// Definitions applies the definitions, rights and admission policies of config/default in the name of owner. It
// needs kubectl, and is called from somewhere in the repository.
func Definitions(ctx context.Context, c client.Client, owner string) error {
	return Folder(ctx, c, "config/default", owner)
}

// Folder is Definitions of another folder of the repository, such as one that an administrator
// adds.
func Folder(ctx context.Context, c client.Client, folder, owner string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	kustomize := exec.CommandContext(ctx, "kubectl", "kustomize", folder)
	kustomize.Dir = root
	manifests, err := kustomize.Output()
	if err != nil {
		return fmt.Errorf("kubectl kustomize %s: %w", folder, err)
	}
	documents := yamlstream.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch object.GetKind() {
		case "CustomResourceDefinition", "Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding",
			"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(owner), client.ForceOwnership); err != nil {
				return fmt.Errorf("install %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
	}
}

// repository returns the folder that holds config/default: the working directory, or one
// above it.
func repository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for folder := start; ; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "config", "default")); err == nil {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", fmt.Errorf("there is no config/default in %s or above it", start)
		}
	}
}
