package backend

import (
	"testing"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

func TestTheBackendOfAPair(t *testing.T) {
	pods, processes := &hostPod{}, &localProcess{}
	all := Backends{
		Default: config.BackendHostPod,
		All:     map[config.TunnelBackend]Backend{config.BackendHostPod: pods, config.BackendLocalProcess: processes},
	}
	p := &tunnelv1.ContainerNetworkTunnelProxy{}
	if all.For(p) != pods {
		t.Error("a new pair does not have the backend of the settings")
	}
	p.Status.ServerProxyBackend = string(config.BackendLocalProcess)
	if all.For(p) != processes {
		t.Error("a pair that runs has another backend than the one it was started with")
	}
}
