package main

import (
	"errors"
	"strings"
)

// kubeletFolder is where config/berg/nested expects the kubelet's files.
const kubeletFolder = "/var/lib/kubelet"

// seccompTemplate returns the template of what installs seccomp profiles on nodes.
func seccompTemplate(all sources) (string, error) {
	var out strings.Builder
	for _, id := range sorted(all.seccomp) {
		text, err := wholeTemplate(all.seccomp, id)
		if err != nil {
			return "", err
		}
		conditions := []string{".Values.families.berg", ".Values.seccompProfiles.install"}
		if kind, _, _ := strings.Cut(id, "/"); kinds[kind] != "" && kind != "Namespace" { // which is not that of the release
			conditions = append(conditions, ".Values."+kinds[kind])
		}
		out.WriteString(guard(conditions, text))
	}
	return out.String(), nil
}

// insertIntoSeccomp puts placeholders into the objects that install seccomp profiles.
func (all *sources) insertIntoSeccomp() error {
	found := false
	for id, object := range all.seccomp {
		insertLabels(object)
		if strings.HasPrefix(id, "Role/") { // to use the PriorityClass
			all.seccomp[id], _ = withPlaceholders(object).(map[string]any)
		}
		if !strings.HasPrefix(id, "DaemonSet/") {
			continue
		}
		pod := child(object, "spec", "template", "spec")
		pod["priorityClassName"] = exprPlaceholder(`include "berg-operator.priorityClass" .`)
		pod["tolerations"] = valuePlaceholder("seccompProfiles.tolerations")
		pod["imagePullSecrets"] = valuePlaceholder("imagePullSecrets")
		for _, field := range []string{"initContainers", "containers"} {
			containers, _ := pod[field].([]any)
			for _, item := range containers {
				container, _ := item.(map[string]any)
				container["image"] = exprPlaceholder(`include "berg-operator.image" .`)
				container["imagePullPolicy"] = exprPlaceholder(".Values.image.pullPolicy")
			}
		}
		volumes, _ := pod["volumes"].([]any)
		for _, item := range volumes {
			volume, _ := item.(map[string]any)
			if volume["hostPath"] == nil {
				continue
			}
			host := child(volume, "hostPath")
			if host["path"] != kubeletFolder+"/seccomp" {
				return errors.New("config/berg/nested sees another folder of the node than the kubelet's seccomp")
			}
			host["path"] = exprPlaceholder(`include "berg-operator.seccompFolder" .`)
			found = true
		}
	}
	if !found {
		return errors.New("config/berg/nested has no DaemonSet with a folder of the node")
	}
	return nil
}

// seccompValues is the part of values.yaml about seccomp profiles.
const seccompValues = `
# For Challenges with sandbox: nested: a DaemonSet, in the namespace berg-seccomp, that copies berg-nested.json into the kubelet's
# folder seccomp on every node. Then set settings.CHALLENGE_NESTED_SECCOMP_PROFILE and rights.nodes.
seccompProfiles:
  install: false
  # The kubelet's --root-dir.
  kubeletFolder: ` + kubeletFolder + `
  # For nodes with taints that pods of challenges tolerate.
  tolerations: []
`

// seccompSchema is the schema of these values.
func seccompSchema() object {
	return closed(object{
		"install":       object{"type": "boolean"},
		"kubeletFolder": object{"type": "string", "pattern": "^/.*[^/]$"},
		"tolerations":   object{"type": "array", "items": object{"type": "object"}},
	})
}
