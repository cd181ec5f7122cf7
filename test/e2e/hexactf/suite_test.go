// Package hexactf tests HexaCTF challenges on a cluster with real pods, a deployed operator and a real Kafka, from the
// point of view of the platform's API server, its consumer and a player.
//
// It takes the cluster from KUBECONFIG, and starts the broker in the network namespace of the node, where pods reach it.
// This needs root. It leaves nothing behind. make e2e E2E=hexactf provides the rest.
package hexactf

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/broker"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	// topic is the default, which the platform uses.
	topic = "challenge-status"
	// secretName and folder are the Secret with the operator's credentials for brokers, and where it is mounted, as in
	// docs/hexactf/messages.md.
	secretName = "kafka-credentials"
	folder     = "/etc/berg-operator/kafka/"
	// deleteTimeout is KAFKA_DELETE_TIMEOUT of these journeys: longer than a broker takes to start.
	deleteTimeout = 45 * time.Second
)

// brokerLimit is how long a broker may take to start while pods start.
var brokerLimit = limits.Scaled(2 * time.Minute)

func TestJourneys(t *testing.T) {
	deployed.Run(t, "HexaCTF challenges on a real cluster, with a real Kafka")
}

var (
	// world is the cluster under test. Specs do not change it.
	world *deployed.Cluster
	// kafka is the broker, which serial specs may stop and restart.
	kafka *broker.Broker
	// log has all messages that arrived there.
	log *broker.Log
)

var _ = BeforeSuite(func(ctx SpecContext) {
	world = deployed.Begin(ctx)
	var err error
	kafka, err = broker.Start(ctx, broker.Options{
		Dir: GinkgoT().TempDir(), Topic: topic, Address: world.NodeAddress, Namespace: world.NetworkNamespace(ctx), Output: GinkgoWriter,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(kafka.Stop()).To(Succeed()) })
	log, err = kafka.Follow(context.Background())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { log.Close() })

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: world.Operator.Namespace, Name: secretName}, Data: map[string][]byte{}}
	for key, file := range map[string]string{"ca.crt": kafka.CAFile, "password": kafka.PasswordFile} {
		secret.Data[key], err = os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(world.Create(ctx, secret)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, secret)).To(Succeed()) }, NodeTimeout(deployed.ReactLimit))
	settings := map[string]string{
		"KAFKA_BROKERS":            kafka.Login,
		"KAFKA_TLS":                "true",
		"KAFKA_CA_FILE":            folder + "ca.crt",
		"KAFKA_SASL_MECHANISM":     "SCRAM-SHA-512",
		"KAFKA_SASL_USERNAME":      broker.User,
		"KAFKA_SASL_PASSWORD_FILE": folder + "password",
		"KAFKA_DELETE_TIMEOUT":     deleteTimeout.String(),
	}
	mount(ctx)
	DeferCleanup(func(ctx SpecContext) {
		// Without the Secret no new pod of the operator would start, and other specs may follow.
		unmount(ctx)
		for name := range settings {
			settings[name] = ""
		}
		setOperator(ctx, settings)
	}, NodeTimeout(2*deployed.StartLimit))
	setOperator(ctx, settings)
}, NodeTimeout(limits.Scaled(10*time.Minute))) // the first run downloads the broker

// mount mounts the Secret into the operator's pods, as in the documentation.
func mount(ctx context.Context) {
	GinkgoHelper()
	patchPods(ctx, fmt.Sprintf(`"volumes":[{"name":"kafka","secret":{"secretName":%q}}],
		"containers":[{"name":"manager","volumeMounts":[{"name":"kafka","mountPath":%q,"readOnly":true}]}]`, secretName, folder))
}

func unmount(ctx context.Context) {
	GinkgoHelper()
	patchPods(ctx, fmt.Sprintf(`"volumes":[{"name":"kafka","$patch":"delete"}],
		"containers":[{"name":"manager","volumeMounts":[{"mountPath":%q,"$patch":"delete"}]}]`, folder))
}

func patchPods(ctx context.Context, fields string) {
	GinkgoHelper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: world.Operator.Namespace, Name: world.Operator.Name}}
	patch := `{"spec":{"template":{"spec":{` + fields + `}}}}`
	Expect(world.Patch(ctx, deployment, client.RawPatch("application/strategic-merge-patch+json", []byte(patch)))).To(Succeed())
}

// setOperator changes the operator's environment and waits until every pod has it.
func setOperator(ctx context.Context, variables map[string]string) {
	GinkgoHelper()
	type variable struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	var env []variable
	for name, value := range variables {
		env = append(env, variable{name, value})
	}
	text, err := json.Marshal(env)
	Expect(err).NotTo(HaveOccurred())
	deployed.ChangeManager(ctx, `"env":`+string(text))
}
