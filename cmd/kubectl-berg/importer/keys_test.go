package importer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/importer"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/lint"
	"github.com/bergctf/berg-operator/internal/berg/rules"
)

// lintErrors imports a folder and returns what lint refuses of the result.
func lintErrors(t *testing.T, folder string) (errs []string) {
	t.Helper()
	result, err := importer.Import(folder, importer.Options{Registry: importer.DefaultRegistry, Tag: "1", Allowed: allowed})
	if err != nil {
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than a line: %q", err)
		}
		return nil // in the words of docker compose
	}
	text, err := importer.Write(result.Challenges)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range lint.Check(lint.Source{Name: folder, Content: text, Named: true}, rules.Settings{Allowed: allowed}).Findings {
		if f.Severity == lint.Error {
			errs = append(errs, f.Field+": "+f.Message)
		}
	}
	return errs
}

// What docker compose takes, or only refuses later, becomes a Challenge that lint accepts, or is refused.
func TestEachKeyOfAService(t *testing.T) {
	for _, text := range []string{
		"image: Nginx:Latest", "image: ''", "image: a b", "image: UPPER/case:1", "image: a@sha256:abc", "image: ${UNSET}", "build: ''", "build: {dockerfile_inline: \"FROM a\\nEXPOSE 99999 0\"}",
		"ports: ['80:80', '81:80', '80:80/udp']", "ports: ['0:0']", "ports: ['70000:70000']", "ports: ['10000-10100']", "ports: [{target: 80, protocol: sctp}]", "ports: ['${UNSET}:${UNSET}']",
		"ports: ['127.0.0.1::80']", "expose: ['x', '0', '99999', '80-90/tcp']", "environment: ['=x', 'A B=c']", "environment: {1A: x, PORT: 80, CHALLENGE_NAMESPACE: a}", "environment: {FLAG: null}",
		"environment: ['FLAG=', 'FLAG_2=b']", "command: ['']", "command: [' ']", "command: ['a b']", "command: \"\\0\"", "entrypoint: ['']", "entrypoint: ['a b']", "entrypoint: \"''\"",
		"healthcheck: {test: [CMD-SHELL, '']}", "healthcheck: {test: [CMD, '']}", "healthcheck: {test: [CMD, 'a b']}", "healthcheck: {test: 'curl -f http://localhost:99999/'}", "healthcheck: {test: [CMD, nc, -z, localhost, '0']}",
		"healthcheck: {test: [CMD, curl, -f, -H, 'a b: c', 'http://localhost:80/a b']}", "healthcheck: {test: a, interval: 999999h, retries: 99999999, timeout: 0s}",
		"deploy: {resources: {limits: {cpus: '0.0001', memory: '1'}}}", "deploy: {resources: {limits: {cpus: '9999', memory: 999t}, reservations: {cpus: '99999', memory: 1k}}}",
		"mem_limit: 1k", "mem_limit: -1", "cpus: 0.00001", "cpus: -1", "shm_size: 1", "shm_size: 999t", "cap_add: [ALL, XYZ, '', chown, CHOWN]", "privileged: true",
		"volumes: ['./flag.txt:/proc/flag']", "volumes: ['./flag.txt:relative']", "volumes: ['./flag.txt:/etc/hosts', './flag.txt:/home']", "volumes: ['./flag.txt:/a/../flag', './:/app']", "volumes: ['/flag', 'flag:/flag']",
		"secrets: [{source: flag, target: /sys/flag}]", "secrets: [nowhere]", "configs: [{source: flag, target: ''}]", "hostname: localhost", "hostname: a.b", "container_name: web-headless",
		"user: 1000", "networks: {n: {aliases: [web, '']}}", "labels: {a: 1}", "scale: 0", "profiles: [x]", "extends: {file: nowhere.yml, service: x}", "links: ['web:db']", "environmnt: [A=b]",
	} {
		for _, service := range []string{"web", "localhost", "Web_1", "0x", "a-node-port", strings.Repeat("long", 30)} {
			folder := t.TempDir()
			base := "\n    image: ghcr.io/example/a:1"
			if strings.HasPrefix(text, "image") || strings.HasPrefix(text, "build") {
				base = ""
			}
			for name, content := range map[string]string{
				"flag.txt": "flag{x}\n", "Dockerfile": "FROM python\nCOPY . /app\nCMD flask run\n",
				"compose.yaml": "services:\n  a: {image: \"ghcr.io/example/a:1\"}\n  " + service + ":" + base + "\n    " + text +
					"\nnetworks: {n: }\nsecrets: {flag: {file: ./flag.txt}}\nconfigs: {flag: {content: 'flag{c}'}}\n",
			} {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if errs := lintErrors(t, folder); len(errs) > 0 {
				t.Errorf("%s: %s: %v", service, text, errs)
			}
		}
	}
}

// A Dockerfile that docker refuses, or that does odd things with a flag, becomes a Challenge that lint accepts.
func TestEachInstructionOfADockerfile(t *testing.T) {
	for _, text := range []string{
		"EXPOSE", "EXPOSE 0 99999 -1 80-70 80/sctp", "EXPOSE 1-65535", "EXPOSE $X ${Y:-80}", "ENV", "ENV A", "ENV FLAG=${X:-a", "ARG", "COPY", "COPY flag.txt", "COPY [bad", "COPY --from=9 / /", "COPY flag* /proc/",
		"COPY flag.txt ../../..", "COPY --chown=:99999999999 --chmod=440 flag.txt /f/flag", "COPY --chmod=999 flag.txt /etc", "COPY <<EOF /x\nunfinished", "COPY [\"flag.txt\", \"/a b/\"]",
		"RUN mv", "RUN mv /flag.txt /flag-$(", "RUN echo 'a > /flag", "RUN echo x >", "RUN echo x > /flag; mv /flag /proc/1/flag", "RUN mv /flag.txt /a:b", "RUN mv /flag.txt /" + strings.Repeat("x", 300),
		"RUN <<A\nmv /flag.txt \"/a\nb\"\nA", "RUN chmod 4777 /flag.txt", "RUN chmod 000 /flag.txt", "RUN chown :0 /flag.txt && chmod 440 /flag.txt", "RUN chown :99999999999 /flag.txt && chmod 440 /flag.txt", "RUN install -m", "RUN tee", "RUN printf",
		"WORKDIR", "WORKDIR /proc\nCOPY flag.txt .", "HEALTHCHECK", "HEALTHCHECK --interval CMD x", "HEALTHCHECK CMD [\"a b\"]", "HEALTHCHECK CMD []", "HEALTHCHECK CMD [\"\"]", "HEALTHCHECK --retries=-5 CMD curl -f localhost",
		"CMD", "CMD []", "CMD [\"\"]", "CMD nc -lvp 99999", "CMD a 5", "ENTRYPOINT [\"./flag.txt\"]", "\\", "\t", "FROM", "FROM nowhere AS b\nFROM b",
	} {
		folder := t.TempDir()
		for name, content := range map[string]string{"flag.txt": "flag{x}\n", "Dockerfile": "FROM debian AS a\nCOPY flag.txt /\n" + text + "\n"} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if errs := lintErrors(t, folder); len(errs) > 0 {
			t.Errorf("%q: %v", text, errs)
		}
	}
}
