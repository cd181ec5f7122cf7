package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

var (
	// minMemory is less than any program needs: the amount has another unit than its author thought.
	minMemory = resource.MustParse("1Mi")
	// maxCPU in cores is more than nodes have.
	maxCPU = resource.MustParse("512")
	// manyCPUs in cores is unusual for one container.
	manyCPUs = resource.MustParse("64")
)

// amountProblem returns why its author cannot have meant an amount, "" if it can.
func amountProblem(name string, a bergv1.Amount, q resource.Quantity) string {
	text := string(a)
	switch {
	case name == "memory" && q.Cmp(minMemory) < 0 && strings.HasSuffix(text, "m"):
		return fmt.Sprintf("is %s thousandths of a byte: write %si for mebibytes", strings.TrimSuffix(text, "m"), strings.TrimSuffix(text, "m")+"M")
	case name == "memory" && q.Cmp(minMemory) < 0 && strings.HasSuffix(text, "k"):
		return fmt.Sprintf("is %d bytes, with which no container starts: write 1Mi or more", q.Value())
	case name == "memory" && q.Cmp(minMemory) < 0:
		return fmt.Sprintf("is %d bytes, with which no container starts: write a unit, for example %sMi", q.Value(), strings.TrimRight(text, "numkKMi"))
	case name == "cpu" && q.Cmp(maxCPU) > 0 && strings.HasSuffix(text, "m"):
		return fmt.Sprintf("is %s cores, which no node has", q.AsDec())
	case name == "cpu" && q.Cmp(maxCPU) > 0:
		return fmt.Sprintf("is %s cores, which no node has: write %sm for thousandths of a core", q.AsDec(), strings.TrimRight(text, "numkKMi"))
	}
	return ""
}

// unitOfOthers is how container engines and people write units of memory.
var unitOfOthers = regexp.MustCompile(`^([0-9]*\.?[0-9]+) ?([kKmMgGtT])(?:[iI]?[bB]|i)?$`)

// unreadableAmount says how an amount is written that cannot be read.
func unreadableAmount(name string, a bergv1.Amount) string {
	if name == "cpu" {
		return "must be a number of cores, such as 0.5, or of their thousandths, such as 500m"
	}
	if found := unitOfOthers.FindStringSubmatch(string(a)); found != nil {
		return fmt.Sprintf("must be a number of bytes with a unit of Kubernetes: write %s%si", found[1], strings.ToUpper(found[2]))
	}
	return "must be a number of bytes with a unit of Kubernetes, such as 256Mi or 1Gi"
}

// octalModes are octal modes that were written as decimal numbers.
var octalModes = []int32{100, 101, 110, 111, 400, 404, 440, 444, 500, 501, 505}

// modeProblem returns why its author cannot have meant a mode, "" if it can.
func modeProblem(mode int32) string {
	switch {
	case slices.Contains(octalModes, mode):
		return fmt.Sprintf("is decimal and means %#o: write 0%d in YAML, or %d in JSON", mode, mode, octal(mode))
	case mode < 0:
		return "must be from 0 to 0777 (511 in JSON)"
	case mode > maxMode && octal(mode) >= 0 && octal(mode) <= maxMode:
		return fmt.Sprintf("must be from 0 to 0777 (511): it is decimal. Write 0%d in YAML, or %d in JSON", mode, octal(mode))
	case mode > maxMode:
		return "must be from 0 to 0777 (511)"
	}
	return ""
}

// octal reads the decimal digits of a number as octal ones; -1 if it has an 8 or a 9.
func octal(n int32) int32 {
	var out, unit int32 = 0, 1
	for ; n > 0; n /= 10 {
		if n%10 > 7 {
			return -1
		}
		out, unit = out+n%10*unit, unit*8
	}
	return out
}
