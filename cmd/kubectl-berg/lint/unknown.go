package lint

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// unknownField suggests an existing field for an unknown one: a field here that begins or ends alike, the same field in
// another object, or a field here with similar letters.
func unknownField(path, name string, known map[string]reflect.Type) string {
	clean := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	names := slices.Sorted(maps.Keys(known))
	b := clean(name)
	for _, candidate := range names {
		a := clean(candidate)
		if a == b || a+"s" == b || a == b+"s" || len(b) > 2 && strings.HasSuffix(a, b) || len(b) > 2 && strings.HasPrefix(a, b) {
			return "is no field: did you mean " + candidate + "?"
		}
	}
	if advice := otherSystems[b]; advice != "" {
		return "is no field: " + advice
	}
	if elsewhere := fieldParents[name]; len(elsewhere) > 0 && len(elsewhere) <= maxParents && !slices.Contains(elsewhere, brackets.ReplaceAllString(path, "[]")) {
		return "is no field here: it belongs to " + strings.Join(elsewhere, " or ") + ". Indent it there"
	}
	for _, candidate := range names {
		if a := clean(candidate); distance(a, b) <= min(2, len(a)/3) {
			return "is no field: did you mean " + candidate + "?"
		}
	}
	return "is no field: remove it. Fields here are " + strings.Join(names, ", ")
}

// otherSystems are fields of pods and compose files, by their letters, and the equivalent in a Challenge.
var otherSystems = map[string]string{
	"resources":       "write resourceLimits and resourceRequests",
	"startupprobe":    "public TCP ports have one already, and readinessProbe decides when players may connect",
	"udpsocket":       "no probe asks a UDP port. Write exec with a program that does",
	"containerport":   "did you mean port?",
	"targetport":      "did you mean port?",
	"expose":          "write ports",
	"entrypoint":      "did you mean command?",
	"cmd":             "did you mean args?",
	"envfrom":         "write each variable in environment",
	"envfile":         "write each variable in environment",
	"privileged":      "no container is. A jail writes sandbox: nested",
	"securitycontext": "write additionalCapabilities, or sandbox: nested for a jail",
	"capadd":          "did you mean additionalCapabilities?",
	"shmsize":         "did you mean sharedMemory?",
	"volumes":         "a container has none. COPY the files into the image",
	"volumemounts":    "a container has none. COPY the files into the image",
	"healthcheck":     "did you mean readinessProbe?",
	"build":           "build and push the image, and write its name in image",
	"timeout":         "a time is part of each instance, in spec.timeout of the ChallengeInstance or CHALLENGE_INSTANCE_TIMEOUT",
	"egress":          "did you mean allowOutboundTraffic of the spec?",
}

// maxParents is the maximum number of objects that are named for a field.
const maxParents = 2

// fieldParents are the objects that have a field of a name.
var fieldParents = collectParents("", reflect.TypeFor[bergv1.Challenge](), map[string][]string{})

// metadataFields are the fields of metadata that authors write.
var metadataFields = []string{"name", "namespace", "labels", "annotations"}

// collectParents ends at types that are written as one value. The status is left out: authors do not write it.
func collectParents(path string, t reflect.Type, all map[string][]string) map[string][]string {
	switch {
	case t.Kind() == reflect.Pointer:
		return collectParents(path, t.Elem(), all)
	case t.Kind() == reflect.Slice:
		return collectParents(path+"[]", t.Elem(), all)
	case t.Kind() != reflect.Struct || t == environmentValue || t == intOrString || t == timeType:
		return all
	}
	fields := jsonFields(t)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		inMetadata := t == reflect.TypeFor[metav1.ObjectMeta]()
		if name == "status" || inMetadata && !slices.Contains(metadataFields, name) {
			continue
		}
		parent := path
		if parent == "" {
			parent = "the top of the Challenge"
		}
		all[name] = append(all[name], parent)
		if !inMetadata {
			collectParents(join(path, name), fields[name], all)
		}
	}
	return all
}

// distance is the number of letters to insert, remove or replace, or to swap with the next one, to make one word of another.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
		for j := 1; j <= len(b); j++ {
			if i == 0 {
				rows[i][j] = j
				continue
			}
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
