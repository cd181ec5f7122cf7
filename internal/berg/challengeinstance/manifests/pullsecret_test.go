package manifests

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParsePullSecretUse(t *testing.T) {
	own := OwnPullSecretName("registry", "0123456789ab")
	for text, want := range map[string]PullSecretUse{
		"":                       {Name: "registry"},
		"registry":               {Name: "registry"},
		"registry/":              {Name: "registry"},
		"registry/0123456789ab":  {Name: "registry", Version: "0123456789ab"},
		own + "/0123456789ab":    {Name: own, Version: "0123456789ab"},
		own + "/ffffffffffff":    {Name: "registry"},
		"another/0123456789ab":   {Name: "registry"},
		"foreign/other/entirely": {Name: "registry"},
	} {
		got := ParsePullSecretUse(text, "registry")
		if got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
		if got.Version != "" && formatPullSecretUse(got) != text {
			t.Errorf("%q is written %q", text, formatPullSecretUse(got))
		}
	}
	long := ""
	for range 26 {
		long += "abcdefghi."
	}
	if name := OwnPullSecretName(long[:253], "0123456789ab"); len(name) > 253 || name[len(name)-14] == '.' {
		t.Errorf("a name of %d characters: %s", len(name), name)
	}
}

func TestPullSecretVersionsDifferBetweenInstances(t *testing.T) {
	in := Inputs{Seed: "one", InstanceID: "id"}
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "secret", ResourceVersion: "5"}, Data: map[string][]byte{"a": []byte("b")}}
	version := in.PullSecretVersion(source)
	for name, other := range map[string]string{
		"another version": in.PullSecretVersion(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "secret", ResourceVersion: "6"}}),
		"another secret":  in.PullSecretVersion(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "other", ResourceVersion: "5"}}),
		"another one's":   Inputs{Seed: "two", InstanceID: "id"}.PullSecretVersion(source),
	} {
		if other == version {
			t.Errorf("%s has the same", name)
		}
	}
	again := source.DeepCopy()
	again.Data = map[string][]byte{"a": []byte("c")}
	if in.PullSecretVersion(again) != version {
		t.Error("it tells something of the content")
	}
}
