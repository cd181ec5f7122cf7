package rules

import (
	"fmt"
	"path"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// validateLate returns why a flag cannot come after the start of its container.
func validateLate(parent *field.Path, f *bergv1.DynamicFlag) field.ErrorList {
	if f.Late == "" {
		return nil
	}
	late := parent.Child("late")
	if f.Late != bergv1.LateFile {
		return field.ErrorList{field.NotSupported(late, f.Late, []bergv1.FlagLate{bergv1.LateFile})}
	}
	if f.Env != nil {
		return field.ErrorList{field.Forbidden(late, "a variable never changes after the start of a program: use content or executable, or leave late out")}
	}
	for name, file := range map[string]*bergv1.FlagFile{"content": f.Content, "executable": f.Executable} {
		if file == nil || !path.IsAbs(file.Path) {
			continue
		}
		if folder := path.Dir(file.Path); folder == "/" || UsuallyFolder(folder) || slices.Contains(runtimeFiles, folder) {
			return field.ErrorList{field.Invalid(parent.Child(name, "path"), file.Path,
				fmt.Sprintf("with late: file, the whole folder %s is replaced: choose a folder that has nothing else, for example /run/flag/flag.txt", folder))}
		}
	}
	return nil
}

// cutsOwner finds words in which a shell takes a part of the namespace's name.
var cutsOwner = regexp.MustCompile(`\$\{CHALLENGE_NAMESPACE[#%:/]`)

// maxWarm is the maximum of the schema.
const maxWarm = 1000

// ValidateWarm returns why no instance of a Challenge can be prepared before its player is known.
func ValidateWarm(c *bergv1.Challenge) field.ErrorList {
	w := c.Spec.Warm
	if w == nil || w.Min == 0 && w.Max == 0 {
		return nil
	}
	var errs field.ErrorList
	warm := field.NewPath("spec", "warm")
	if w.Min < 0 || w.Max < 0 {
		errs = append(errs, field.Invalid(warm, fmt.Sprintf("min %d, max %d", w.Min, w.Max), "must not be negative"))
	}
	if w.Min > maxWarm {
		errs = append(errs, field.Invalid(warm.Child("min"), w.Min, fmt.Sprintf("must be at most %d", maxWarm)))
	}
	if w.Max > 0 && w.Min > w.Max {
		errs = append(errs, field.Invalid(warm.Child("min"), w.Min, fmt.Sprintf("must not be above spec.warm.max (%d)", w.Max)))
	}
	if limit := c.Spec.MaxInstances; limit > 0 && w.Min > limit {
		errs = append(errs, field.Invalid(warm.Child("min"), w.Min, fmt.Sprintf("must not be above spec.maxInstances (%d)", limit)))
	}
	if w.Min > 0 && len(c.Spec.Containers) == 0 {
		errs = append(errs, field.Invalid(warm.Child("min"), w.Min, "the Challenge has no containers: there is nothing to prepare"))
	}
	for n, container := range c.Spec.Containers {
		refuse := func(parent *field.Path, text string) {
			if w.Min > 0 && cutsOwner.MatchString(text) {
				errs = append(errs, field.Forbidden(parent, "takes the owner out of CHALLENGE_NAMESPACE. The namespace of a prepared instance does not have the owner "+
					"in its name: remove spec.warm, or use the whole value"))
			}
		}
		position := field.NewPath("spec", "containers").Index(n)
		for i, word := range container.Command {
			refuse(position.Child("command").Index(i), word)
		}
		for i, word := range container.Args {
			refuse(position.Child("args").Index(i), word)
		}
		for name, value := range container.Environment {
			text, _ := value.Text()
			refuse(position.Child("environment").Key(name), text)
		}
	}
	return errs
}
