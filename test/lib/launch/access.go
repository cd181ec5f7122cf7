package launch

import (
	"context"
	"fmt"
	"net"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// tokenLifetime is longer than any test runs.
const tokenLifetime = 24 * time.Hour

// Token returns a token of a ServiceAccount, which is valid for a day.
func Token(ctx context.Context, admin *rest.Config, namespace, account string) (string, error) {
	core, err := clientcorev1.NewForConfig(admin)
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds()))}}
	answer, err := core.ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("get a token of ServiceAccount %s/%s: %w", namespace, account, err)
	}
	return answer.Status.Token, nil
}

// Account is how a ServiceAccount reaches the API server for a day, without a limit of requests
// on this side.
func Account(ctx context.Context, admin *rest.Config, namespace, account string) (*rest.Config, error) {
	token, err := Token(ctx, admin, namespace, account)
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = token
	config.QPS = -1
	return config, nil
}

// WriteKubeconfig writes a file with the server of config, its authorities and its token. No
// other kind of credentials is written.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "operator"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, path)
}

// FreeAddress returns an address of this machine where nothing listened a moment ago, as
// host:port.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
