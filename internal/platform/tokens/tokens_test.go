package tokens

import (
	"net/http"
	"strings"
	"testing"
)

const one, two = "0123456789abcdef-one", "0123456789abcdef-two"

func TestTokens(t *testing.T) {
	for name, tc := range map[string]struct {
		entry string
		wrong string // in the error; "": none
	}{
		"YAML":                       {"endpoint: rctf\ntoken: " + one, ""},
		"one line":                   {"{endpoint: rctf, token: " + one + "}", ""},
		"JSON":                       {`{"endpoint":"rctf","token":"` + one + `"}`, ""},
		"another namespace":          {"{endpoint: v1, namespace: finals, token: " + one + "}", ""},
		"a namespace that is none":   {"{endpoint: v1, namespace: A B, token: " + one + "}", "namespace"},
		"a namespace of others":      {"{endpoint: v1, namespace: kube-system, token: " + one + "}", "PLATFORM_NAMESPACE"},
		"no endpoint":                {"token: " + one, "endpoint"},
		"an unknown endpoint":        {"{endpoint: ctfd, token: " + one + "}", "chall-manager"},
		"no token":                   {"endpoint: rctf", "openssl"},
		"a short token":              {"{endpoint: rctf, token: short-token}", "openssl"},
		"a name of its own":          {"{endpoint: rctf, name: x, token: " + one + "}", "name"},
		"a token alone":              {one, "YAML"},
		"a field that is none":       {"{endpoint: rctf, tokn: " + one + "}", "YAML"},
		"a token that is too long":   {"{endpoint: rctf, token: " + strings.Repeat("a", 1000) + "}", "openssl"},
		"a token that is not a text": {"{endpoint: rctf, token: [1]}", "YAML"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Parse(map[string][]byte{"mine": []byte(tc.entry)}, "berg", []string{"berg", "finals"})
			switch {
			case tc.wrong == "" && (err != nil || set.Len() != 1):
				t.Errorf("%d tokens, %v", set.Len(), err)
			case tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong) || !strings.Contains(err.Error(), "mine") || set.Len() != 0):
				t.Errorf("%d tokens, %v: want an error of key mine with %q", set.Len(), err, tc.wrong)
			case err != nil && strings.Contains(err.Error(), one):
				t.Errorf("the error repeats the token: %v", err)
			}
		})
	}
}

func TestAWrongTokenDoesNotCloseTheOthers(t *testing.T) {
	set, err := Parse(map[string][]byte{
		"a": []byte("{endpoint: rctf, token: " + one + "}"), "b": []byte("endpoint: nothing"), "c": []byte("{endpoint: v1, token: " + one + "}"), "d": []byte("{endpoint: v1, token: " + two + "}"),
	}, "berg", []string{"berg"})
	if err == nil || !strings.Contains(err.Error(), "key b") || !strings.Contains(err.Error(), "key c") {
		t.Errorf("%v", err)
	}
	if grant, ok := set.Find(one); !ok || grant != (Grant{"a", EndpointRCTF, "berg"}) {
		t.Errorf("%v, %t", grant, ok)
	}
	if grant, ok := set.Find(two); !ok || grant != (Grant{"d", EndpointV1, "berg"}) {
		t.Errorf("%v, %t", grant, ok)
	}
	for _, token := range []string{"", "x", one + " ", strings.Repeat("a", 1<<20)} {
		if _, ok := set.Find(token); ok {
			t.Errorf("a token of %d bytes is accepted", len(token))
		}
	}
	if _, ok := new(Store).Find(one); ok {
		t.Error("a store without a Secret is accepted")
	}
}

func TestWhereARequestHasItsToken(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(*http.Request)
		want string
	}{
		"nowhere":             {func(*http.Request) {}, ""},
		"Bearer":              {func(r *http.Request) { r.Header.Set("Authorization", "bearer  "+one) }, one},
		"password of Basic":   {func(r *http.Request) { r.SetBasicAuth("any", one) }, one},
		"CTFd's header":       {func(r *http.Request) { r.Header.Set("X-Ctfd-Auth", one) }, one},
		"user of Basic":       {func(r *http.Request) { r.SetBasicAuth(one, "") }, ""},
		"an unknown scheme":   {func(r *http.Request) { r.Header.Set("Authorization", "Digest "+one) }, ""},
		"a token that is all": {func(r *http.Request) { r.Header.Set("Authorization", one) }, ""},
	} {
		r, _ := http.NewRequest(http.MethodGet, "/", nil) //nolint:noctx // it is never sent
		tc.set(r)
		if got := FromRequest(r); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
