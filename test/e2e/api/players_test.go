package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/journey"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	namespace = deployed.PlatformNamespace
	ctfdToken = "e2e-token-of-ctfd-0123456789"
	rctfToken = "e2e-token-of-rctf-0123456789"
)

// address is where the API is reached from this machine: a replica.
var address string

// install installs the API until the suite ends.
func install(ctx SpecContext) {
	GinkgoHelper()
	pods := world.InstallPlatformAPI(ctx, map[string]string{
		"ctfd": "endpoint: chall-manager\ntoken: " + ctfdToken + "\n",
		"rctf": "endpoint: rctf\ntoken: " + rctfToken + "\n",
	})
	address = "http://" + world.Forward(client.ObjectKeyFromObject(&pods[0]), 8080)
}

// send sends a request as CTFd's plugin, or with the token in the body as rCTF.
func send(ctx context.Context, method, path string, body map[string]any) (int, map[string]any) {
	GinkgoHelper()
	data, err := json.Marshal(body)
	Expect(err).NotTo(HaveOccurred())
	r, err := http.NewRequestWithContext(ctx, method, address+path, bytes.NewReader(data))
	Expect(err).NotTo(HaveOccurred())
	if _, inBody := body["rctfAuthToken"]; !inBody {
		r.SetBasicAuth("ctfd", ctfdToken)
	}
	answer, err := http.DefaultClient.Do(r)
	Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	Expect(err).NotTo(HaveOccurred())
	var all map[string]any
	Expect(json.Unmarshal(text, &all)).To(Succeed(), string(text))
	return answer.StatusCode, all
}

// echoes connects as a player does, and expects what it sends back.
func echoes(port int32) {
	GinkgoHelper()
	var connection net.Conn
	Eventually(func() (err error) { // the names of players are unknown to the API here, and a busy node forwards late
		connection, err = net.DialTimeout("tcp", world.AtNode(port), limits.Scaled(10*time.Second))
		return err
	}).WithTimeout(deployed.ReactLimit).Should(Succeed(), "an instance that runs does not accept a connection")
	defer connection.Close()
	_, err := fmt.Fprintln(connection, "hello")
	Expect(err).NotTo(HaveOccurred())
	read := make([]byte, 5)
	_, err = io.ReadFull(connection, read)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(read)).To(Equal("hello"))
}

func challenge(ctx context.Context, name string) {
	GinkgoHelper()
	box := journey.Toolbox("box", bergv1.Port{Name: "echo", Port: 9000, Type: bergv1.PublicPort})
	box.Environment = map[string]bergv1.EnvironmentValue{"TOOLBOX_TCP": bergv1.StringValue(":9000")}
	box.DynamicFlag = &bergv1.DynamicFlag{Content: &bergv1.FlagFile{Path: "/flag.txt"}}
	c := &bergv1.Challenge{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       bergv1.ChallengeSpec{Flag: "flag{echo}", DynamicFlagMode: "suffix", Containers: []bergv1.Container{box}},
	}
	Expect(world.Create(ctx, c)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(world.Delete(ctx, c)).To(Succeed()) }, NodeTimeout(limits.Scaled(time.Minute)))
}

func portOf(address string) int32 {
	GinkgoHelper()
	port, err := strconv.ParseInt(address[strings.LastIndex(address, ":")+1:], 10, 32)
	Expect(err).NotTo(HaveOccurred(), address)
	return int32(port)
}

// running returns the only instance that lives.
func running(ctx context.Context) bergv1.ChallengeInstance {
	GinkgoHelper()
	var list bergv1.ChallengeInstanceList
	Expect(world.List(ctx, &list, client.InNamespace(namespace))).To(Succeed())
	var all []bergv1.ChallengeInstance
	for _, i := range list.Items {
		if i.DeletionTimestamp == nil && i.Spec.TerminationReason == "" {
			all = append(all, i)
		}
	}
	Expect(all).To(HaveLen(1))
	return all[0]
}

var _ = Describe("A player", func() {
	It("on CTFd boots, plays, restarts and solves", func(ctx SpecContext) {
		challenge(ctx, "echo")
		status, answer := send(ctx, "POST", "/api/v1/challenge", map[string]any{"id": "1", "scenario": "echo", "timeout": "600s", "until": nil, "additional": map[string]any{}})
		Expect(status).To(Equal(200), "%v", answer)
		DeferCleanup(func(ctx SpecContext) {
			status, answer := send(ctx, "DELETE", "/api/v1/challenge/1", nil)
			Expect(status).To(Equal(200), "%v", answer)
		}, NodeTimeout(limits.Scaled(time.Minute)))

		status, first := send(ctx, "POST", "/api/v1/instance", map[string]any{"challengeId": "1", "sourceId": "7"})
		Expect(status).To(Equal(200), "%v", first)
		info, _ := first["connectionInfo"].(string)
		echoes(portOf(info))
		i := running(ctx)
		flags, _ := first["flags"].([]any)
		Expect(flags).To(ConsistOf(i.Spec.Flag))
		Expect(world.Run(ctx, i.Status.Namespace, "box", "cat", "/flag.txt")).To(Equal(i.Spec.Flag + "\n"))

		By("restarting: DELETE, and POST immediately")
		status, answer = send(ctx, "DELETE", "/api/v1/instance/1/7", nil)
		Expect(status).To(Equal(200), "%v", answer)
		status, second := send(ctx, "POST", "/api/v1/instance", map[string]any{"challengeId": "1", "sourceId": "7"})
		Expect(status).To(Equal(200), "%v", second)
		info, _ = second["connectionInfo"].(string)
		echoes(portOf(info))
		Expect(running(ctx).Spec.Flag).NotTo(Equal(i.Spec.Flag))

		By("solving, after which the instance is destroyed")
		status, answer = send(ctx, "DELETE", "/api/v1/instance/1/7", nil)
		Expect(status).To(Equal(200), "%v", answer)
		Eventually(func() int { // a moment, if the Service chooses the replica that did not destroy it
			status, answer = send(ctx, "GET", "/api/v1/instance/1/7", nil)
			return status
		}).WithContext(ctx).Should(Equal(404), "%v", answer)
	}, SpecTimeout(deployed.SpecLimit))

	It("on rCTF starts, plays, extends and stops", func(ctx SpecContext) {
		challenge(ctx, "echo")
		with := func(more map[string]any) map[string]any {
			all := map[string]any{"kind": "instancer", "rctfAuthToken": rctfToken, "teamId": "0f8fad5b-d9cb-469f-a165-70867728950e", "challengeIntegrationId": "echo"}
			for name, value := range more {
				all[name] = value
			}
			return all
		}
		const path = "/v1/instances/"
		status, answer := send(ctx, "PUT", path, with(map[string]any{"flags": []any{map[string]any{"provider": "static", "flag": "rctf{mine}"}}, "timeoutMilliseconds": 600_000}))
		Expect(status).To(Equal(200), "%v", answer)
		Eventually(func() any {
			_, answer = send(ctx, "POST", path, with(nil))
			return answer["status"]
		}).WithContext(ctx).WithTimeout(deployed.StartLimit).Should(Equal("running"))
		endpoints, _ := answer["endpoints"].([]any)
		Expect(endpoints).To(HaveLen(1))
		endpoint, _ := endpoints[0].(map[string]any)
		port, _ := endpoint["port"].(float64)
		echoes(int32(port))
		i := running(ctx)
		Expect(world.Run(ctx, i.Status.Namespace, "box", "cat", "/flag.txt")).To(Equal("rctf{mine}\n"))
		status, answer = send(ctx, "PATCH", path, with(map[string]any{"timeoutMilliseconds": 3_600_000}))
		Expect(status).To(Equal(200), "%v", answer)
		status, answer = send(ctx, "DELETE", path, with(nil))
		Expect(status).To(Equal(200), "%v", answer)
		Eventually(func() any {
			_, answer = send(ctx, "POST", path, with(nil))
			return answer["status"]
		}).WithContext(ctx).WithTimeout(deployed.DeleteLimit).Should(Equal("stopped"))
	}, SpecTimeout(deployed.SpecLimit))

	It("does not reach the API: only namespaces of platforms may", func(ctx SpecContext) {
		policy := &networkingv1.NetworkPolicy{}
		Expect(world.Get(ctx, client.ObjectKey{Namespace: world.Operator.Namespace, Name: deployed.PlatformAPI}, policy)).To(Succeed())
		Expect(policy.Spec.PolicyTypes).To(ConsistOf(networkingv1.PolicyTypeIngress))
		for _, rule := range policy.Spec.Ingress {
			for _, from := range rule.From {
				Expect(from.NamespaceSelector.MatchLabels).NotTo(BeEmpty())
			}
		}
	}, SpecTimeout(deployed.SpecLimit))
})
