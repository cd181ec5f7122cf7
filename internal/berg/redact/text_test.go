package redact

import "testing"

func BenchmarkText(b *testing.B) {
	for name, text := range map[string]string{
		"message": `Deployment.apps "web" is invalid: spec.template.spec.containers[0].image: Invalid value: "registry.example.com/guestbook:1": must be a valid image reference, see https://kubernetes.io/docs/concepts/containers/images?x=1&y=2`,
		"log":     `{"level":"info","ts":"2030-06-01T12:00:00Z","logger":"challengeinstance","msg":"The instance is running","namespace":"berg","name":"alice-guestbook","flags":3}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Text(text, "flag{0nly_for/alice?+}")
			}
		})
	}
}
