// Package installed puts what config/default installs onto a cluster, without the operator
// itself, for programs that start the operator as a process of their own.
package installed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names that config/default gives to the operator's namespace and ServiceAccount.
const (
	Namespace = "berg-operator-system"
	Account   = "berg-operator-controller-manager"
)

// Definitions applies the definitions and rights of config/default, seen from the
// repository, in the name of owner.
func Definitions(ctx context.Context, c client.Client, owner string) error {
	manifests, err := exec.CommandContext(ctx, "kubectl", "kustomize", "config/default").Output()
	if err != nil {
		return fmt.Errorf("kubectl kustomize config/default: %w", err)
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
		case "CustomResourceDefinition", "Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding":
			if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(owner), client.ForceOwnership); err != nil {
				return fmt.Errorf("install %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
	}
}

// FreeAddress returns an address of this machine that nobody listened at a moment ago.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
