package hook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxAge is how old a signed webhook may be that has the time in its signature.
const maxAge = 5 * time.Minute

// key is a secret in the forms in which providers use it.
type key struct {
	text  string // of X-Gitlab-Token, and as the key of most signatures
	bytes []byte // as the key of signatures by the signing token
}

func (s Secret) key() key { return key{s.Text(), s[:]} }

// signatures are the headers with a signature of the body: in hexadecimal digits, after a prefix. The first header that a request has
// decides: a wrong one is not rescued by another one.
var signatures = []struct{ header, prefix string }{
	{"X-Hub-Signature-256", "sha256="}, // GitHub
	{"X-Forgejo-Signature", ""},
	{"X-Gitea-Signature", ""},
	{"X-Hub-Signature", "sha256="}, // Bitbucket
}

// verify reports whether a request has the signature or the token of a key, and returns the SHA-256 of its body, which it reads. It
// does not read the body of a request that needs none to be refused. A signature is compared after the whole body has been read,
// a token before it: both in constant time.
func (k key) verify(h http.Header, body io.Reader, now time.Time) (digest [sha256.Size]byte, ok bool, err error) {
	sum := sha256.New()
	mac := hmac.New(sha256.New, []byte(k.text))
	var check func() bool
	switch {
	case h.Get("Webhook-Signature") != "":
		mac = hmac.New(sha256.New, k.bytes)
		id, sent := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp")
		if seconds, err := strconv.ParseInt(sent, 10, 64); err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > maxAge {
			return digest, false, nil //nolint:nilerr // such a time is not a right one
		}
		mac.Write([]byte(id + "." + sent + "."))
		check = func() bool {
			want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
			return slices.ContainsFunc(strings.Fields(h.Get("Webhook-Signature")), func(given string) bool { return hmac.Equal([]byte(given), want) })
		}
	case slices.ContainsFunc(signatures, func(s struct{ header, prefix string }) bool { return h.Get(s.header) != "" }):
		s := signatures[slices.IndexFunc(signatures, func(s struct{ header, prefix string }) bool { return h.Get(s.header) != "" })]
		check = func() bool {
			return hmac.Equal([]byte(h.Get(s.header)), []byte(s.prefix+hex.EncodeToString(mac.Sum(nil))))
		}
	case subtle.ConstantTimeCompare([]byte(h.Get("X-Gitlab-Token")), []byte(k.text)) == 1:
		check = func() bool { return true }
	default:
		return digest, false, nil
	}
	if _, err := io.Copy(io.MultiWriter(sum, mac), body); err != nil {
		return digest, false, err
	}
	sum.Sum(digest[:0])
	return digest, check(), nil
}

// events are the headers that name an event, with the values for pushes of branches and tags.
var events = []struct {
	header string
	pushes []string
}{
	{"X-Github-Event", []string{"push"}},
	{"X-Forgejo-Event", []string{"push", "create"}},
	{"X-Gitea-Event", []string{"push", "create"}},
	{"X-Gitlab-Event", []string{"Push Hook", "Tag Push Hook"}},
	{"X-Event-Key", []string{"repo:push", "repo:refs_changed"}}, // Bitbucket in the cloud, and of one's own
}

// isPush reports whether a request announces a push. Others are answered, and nothing follows.
func isPush(h http.Header) bool {
	for _, event := range events {
		if name := h.Get(event.header); name != "" && slices.Contains(event.pushes, name) {
			return true
		}
	}
	return false
}
