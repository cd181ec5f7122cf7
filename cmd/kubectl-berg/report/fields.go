package report

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Object has the fields of an object of Kubernetes that a report shows, by their names in JSON.
type Object map[string]any

// The fields that a report shows. All others are left out, also those that a later version of a kind adds.
var (
	identity   = below("metadata", "namespace name generation creationTimestamp deletionTimestamp")
	conditions = below("status.conditions", "type status reason message lastTransitionTime")

	operatorFields = newTree(identity, conditions, below("spec.template.spec.containers", "name image"),
		below("status", "observedGeneration replicas updatedReplicas readyReplicas"))
	nodeFields = newTree(identity, conditions, below("spec", "unschedulable"), below("spec.taints", "key effect"),
		below("status.nodeInfo", "kubeletVersion containerRuntimeVersion osImage architecture"), below("status.allocatable", "cpu memory pods"))
	podFields = newTree(identity, conditions, below("spec", "nodeName"), below("status", "phase reason message"),
		below("status.initContainerStatuses", containerFields), below("status.containerStatuses", containerFields))
	// The message of a container that ended is its own output, and left out.
	stateFields     = below("waiting", "reason message") + " " + below("running", "startedAt") + " " + below("terminated", "reason exitCode startedAt finishedAt")
	containerFields = "name image imageID ready restartCount " + below("state", stateFields) + " " + below("lastState", stateFields)
	// A Challenge is shown without the texts for players, and without flags, variables and commands.
	challengeFields = newTree(identity, conditions, below("spec", "maxInstances allowOutboundTraffic hideUntil prepull"),
		below("spec.containers", "hostname image readinessProbe additionalCapabilities sandbox runtimeClassName resourceRequests.cpu "+
			"resourceRequests.memory resourceLimits.cpu resourceLimits.memory dynamicFlag.env dynamicFlag.content dynamicFlag.executable"),
		below("spec.containers.ports", "name port protocol type"))
	// Of an instance's addresses only the number is shown, because players alone know them.
	instanceFields = newTree(identity, conditions, below("metadata", "uid finalizers"), below("spec", "challengeRef.name ownerId timeout terminationReason"),
		below("status", "observedGeneration phase cause namespace startedAt readyAt expiresAt services"))
	solverFields = newTree(identity, conditions, below("spec", "challengeRef.name solver.image schedule.every suspend"),
		below("status", "nextRunAt history.startedAt history.result"))
	eventFields = newTree("type reason message reportingComponent count lastTimestamp eventTime metadata.creationTimestamp",
		below("source", "component"), below("involvedObject", "kind namespace name"), below("series", "count lastObservedTime"))
)

// below returns the paths of fields of a parent.
func below(parent, names string) string {
	paths := strings.Fields(names)
	for i, name := range paths {
		paths[i] = parent + "." + name
	}
	return strings.Join(paths, " ")
}

// tree has fields by their names, each with its own fields.
type tree map[string]tree

// newTree returns the tree of all paths.
func newTree(lists ...string) tree {
	top := tree{}
	for path := range strings.FieldsSeq(strings.Join(lists, " ")) {
		parent := top
		for name := range strings.SplitSeq(path, ".") {
			if parent[name] == nil {
				parent[name] = tree{}
			}
			parent = parent[name]
		}
	}
	return top
}

// show returns the fields of an object that a tree has. The result is a copy: the object is the survey's.
func (t tree) show(object any) Object {
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return Object{} // what the API server has sent can be written again
	}
	return t.pick(all).(map[string]any)
}

// pick returns the part of a value that a tree has. Without fields of its own, an object shows only that it is there.
func (t tree) pick(value any) any {
	switch value := value.(type) {
	case map[string]any:
		shown := map[string]any{}
		for name, own := range t {
			if part := value[name]; part != nil {
				shown[name] = own.pick(part)
			}
		}
		return shown
	case []any:
		for i := range value {
			value[i] = t.pick(value[i])
		}
		return value
	default:
		return value
	}
}
