package main

import (
	"maps"
	"strings"
	"testing"
)

func line(stage, verb, user, agent, resource, subresource string) string {
	return `{"stage":"` + stage + `","verb":"` + verb + `","user":{"username":"` + user + `"},"userAgent":"` + agent +
		`","objectRef":{"resource":"` + resource + `","subresource":"` + subresource + `"}}` + "\n"
}

func TestRequestsAreCountedByWhoMadeThem(t *testing.T) {
	log := line("ResponseComplete", "patch", operatorUser, "manager/v1", "challengeinstances", "status") +
		line("ResponseComplete", "patch", operatorUser, "manager/v1", "challengeinstances", "status") +
		line("ResponseComplete", "create", operatorUser, bareAgent, "namespaces", "") +
		line("ResponseComplete", "create", "system:kube-controller-manager", "kcm", "pods", "") +
		line("ResponseStarted", "watch", operatorUser, "manager/v1", "pods", "") +
		line("ResponseComplete", "get", operatorUser, "manager/v1", "namespaces", "") +
		`{"stage":"ResponseComp`
	for bare, want := range map[bool]map[string]int{
		false: {"patch challengeinstances/status": 2, "get namespaces": 1},
		true:  {"create namespaces": 1},
	} {
		got, err := countRequests(strings.NewReader(log), bare)
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Errorf("bare %t: got %v, want %v", bare, got, want)
		}
	}
}

func TestClassesOfRequests(t *testing.T) {
	got := classify(map[string]float64{
		"create namespaces": 1, "patch challengeinstances": 1, "patch challengeinstances/status": 3,
		"create events": 2, "update leases": 7, "get leases": 7, "watch pods": 1, "get namespaces": 1, "list pods": 1,
	})
	if want := (classes{writes: 5, status: 3, reads: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
