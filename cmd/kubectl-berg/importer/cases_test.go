package importer_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/kubectl-berg/importer"
)

// describe writes what matters of Challenges in one line each: flag, and for each container its image, way of the flag,
// ports and confinement.
func describe(result importer.Result) string {
	var out []string
	for _, c := range result.Challenges {
		line := []string{c.Name}
		for _, text := range append([]string{c.Spec.DisplayName, c.Spec.Author, c.Spec.Flag}, c.Spec.Categories...) {
			if text != "" {
				line = append(line, text)
			}
		}
		if c.Spec.StaticValue != nil {
			line = append(line, fmt.Sprint(*c.Spec.StaticValue))
		}
		for _, c := range c.Spec.Containers {
			text := c.Hostname + " " + flagPath(c.DynamicFlag)
			for _, p := range c.Ports {
				text += fmt.Sprintf(" %d:%s", p.Port, p.Type)
			}
			if c.Sandbox != "" {
				text += " " + string(c.Sandbox)
			}
			if c.RuntimeClassName != "" {
				text += " " + c.RuntimeClassName
			}
			if r := c.ResourceRequests; r != nil && r.Memory != nil {
				text += " " + string(*r.Memory)
			}
			for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
				value, _ := c.Environment[name].Text()
				text += " " + name + "=" + value
			}
			line = append(line, "["+text+"]")
		}
		out = append(out, strings.Join(line, ", "))
	}
	return strings.Join(out, "; ")
}

// The whole result is compared, and said must be in the notes.
func TestFilesOfAuthors(t *testing.T) {
	const jail = "FROM gcr.io/kctf-docker/challenge\nCOPY flag /\nCMD kctf_setup && kctf_drop_privs socat TCP-LISTEN:1337,reuseaddr,fork EXEC:nsjail\n"
	const kctf = "apiVersion: kctf.dev/v1\nkind: Challenge\nmetadata: {name: a}\nspec:\n  image: example.com/a:1\n"
	for name, tc := range map[string]struct {
		files map[string]string
		split bool
		want  string
		said  []string
	}{
		"kCTF with a pod template": {
			files: map[string]string{"challenge.yaml": kctf + "  horizontalPodAutoscalerSpec: {maxReplicas: 20}\n  podTemplate:\n    template:\n      spec:\n        runtimeClassName: gvisor\n" +
				"        containers:\n        - {name: challenge, resources: {requests: {memory: 512Mi}}, env: [{name: FLAG, value: 'CTF{a}'}, {name: A, value: b}]}\n        - {name: db, image: 'redis:7', ports: [{containerPort: 6379}]}\n" +
				"        volumes: [{name: v}]\n"},
			want: "a, CTF{a}, [a $FLAG 1337:publicPort gvisor 512Mi A=b], [db none 6379:internalPort gvisor]",
			said: []string{"challenge.yaml:6: a: horizontalPodAutoscalerSpec", "nothing has to be scaled", "challenge.yaml:14: a: volumes", "db: name: db: containers of a pod shared localhost"},
		},
		"kCTF behind HTTPS": {files: map[string]string{"challenge.yaml": kctf + "  network: {public: true, ports: [{protocol: HTTPS, targetPort: 8443}]}\n"}, want: "a, [a none 8443:publicHttpRoute]"},
		"kCTF, an instance template": {
			files: map[string]string{"challenge.yaml": strings.Replace(kctf, "kind: Challenge", "kind: ChallengeInstanceTemplate", 1) + "  defaultDuration: 900\n  network: {ports: [{protocol: TCP, targetPort: 1338}]}\n"},
			want:  "a, [a none 1338:publicPort]", said: []string{"challenge.yaml:6: a: defaultDuration: 900: a time is part of each instance"},
		},
		"kCTF next to ctfcli": {
			files: map[string]string{"challenge.yaml": kctf, "challenge.yml": "name: A b\nauthor: c\ncategory: pwn\nvalue: 50\nflags: ['f{x}']\n", "challenge/Dockerfile": jail, "challenge/flag": "f{x}"},
			want:  "a, A b, c, f{x}, pwn, 50, [a /flag 1337:publicPort nested]",
		},
		"ctfcli with a Dockerfile": {
			files: map[string]string{"challenge.yml": "name: Web one\nauthor: [a, b]\ncategory: web\ntype: dynamic\nvalue: 500\nextra: {initial: 500}\nimage: .\nprotocol: http\nflags:\n- {type: static, content: 'flag{y}', data: case_insensitive}\n- 'flag{z}'\nhints: [h]\n", "Dockerfile": "FROM debian\nEXPOSE 1234\n"},
			want:  "001, Web one, a, b, flag{z}, web, [c-001 none 1234:publicHttpRoute]",
			said:  []string{"challenge.yml:5: value: 500: the platform calculates", "challenge.yml:12: 001: hints", "a Challenge has one flag"},
		},
		"ctfcli with an image":   {files: map[string]string{"challenge.yml": "name: n\ncategory: pwn\nflags: ['flag{y}']\nimage: ghcr.io/example/n:2\nconnection_info: nc pwn.example.com 1337\n"}, want: "001, n, flag{y}, pwn, [c-001 none]", said: []string{"no port for players is known"}},
		"ctfcli above a compose": {files: map[string]string{"challenge.yml": "name: n\ncategory: pwn\nconnection_info: ncat --ssl a.example.com 443\n", "src/compose.yaml": "services: {a: {build: ., ports: ['9:1337']}}\n", "src/Dockerfile": "FROM debian\n"}, want: "001, n, pwn, [a none 1337:publicTlsRoute]"},
		"an event's own file":    {files: map[string]string{"challenge.yaml": "name: Key\nauthor: h\ncategory: crypto\ndescription: 'ncat --ssl key.chal.uiuc.tf 1337'\nflag: uiuctf{a}\ncontainers:\n  main:\n    challenge: {build: challenge/, ports: [1337]}\nexpose: {main: [{target: 1337, tcp: key.chal.uiuc.tf}]}\n", "challenge/Dockerfile": jail, "healthcheck/Dockerfile": "FROM a\n"}, want: "001, Key, h, uiuctf{a}, crypto, [c-001 /flag 1337:publicTlsRoute nested]", said: []string{"challenge.yaml:6: containers", "is left out: containers and ports are those of", "healthcheck/Dockerfile: folder: is left out"}},
		"a category of ctfcli": {
			files: map[string]string{"a/challenge.yml": "name: A\ncategory: web\n", "a/Dockerfile": "FROM debian\nEXPOSE 80\n", "b/challenge.yml": "name: B\ncategory: pwn\n", "b/src/Dockerfile": jail, "c/challenge.yml": "name: C\ncategory: misc\n"},
			want:  "a, A, web, [a none 80:publicHttpRoute]; b, B, pwn, [b /flag 1337:publicPort nested]", said: []string{"c/challenge.yml: file: describes a challenge without a container"},
		},
		"a file that is no challenge": {files: map[string]string{"challenge.yaml": "containers: {web: {ports: text}}\n", "Dockerfile": "FROM debian\nEXPOSE 80\n"}, want: "001, [c-001 none 80:publicHttpRoute]", said: []string{"challenge.yaml: file: is not understood, and not imported"}},
		"rCTF, TLS ended by a proxy": {
			files: map[string]string{"challenge.yaml": "name: a\ncontainers: {a: {image: 'example.com/a:1', ports: [1, 8443, 3]}}\nexpose: {a: [{target: 1, tcp: a.example.com}, {target: 8443, http: a}, {target: 3, tcp: 31337}]}\n"},
			want:  "001, a, [a none 1:publicTlsRoute 8443:publicHttpRoute 3:publicPort]",
		},
		"several challenges": {
			files: map[string]string{"compose.yaml": "services:\n  a: {image: 'example.com/a:1', ports: ['1:80'], networks: [x]}\n  b: {image: 'example.com/b:1', ports: ['2:80'], networks: [y]}\n  db: {image: 'redis:7', networks: [y]}\nnetworks: {x: , y: }\n"},
			want:  "001, [a none 80:publicHttpRoute], [b none 80:publicHttpRoute], [db none 6379:internalPort]", said: []string{"compose.yaml:5: networks: a, y: these are several challenges"},
		},
		"several challenges in one network": {
			files: map[string]string{"compose.yaml": "services:\n  a: {build: a, ports: ['1:6201'], networks: [n]}\n  b: {build: b, ports: ['2:6201'], networks: [n]}\nnetworks: {n: }\n", "a/Dockerfile": jail, "a/flag": "f{a}", "b/Dockerfile": jail, "b/flag": "f{b}"},
			want:  "001, f{a}, [a /flag 6201:publicPort nested], [b /flag 6201:publicPort nested]", said: []string{"compose.yaml:1: services: a, b: are one Challenge, though none names another"},
		},
		"several challenges in one network, split": {
			split: true, files: map[string]string{"compose.yaml": "services:\n  a: {build: a, ports: ['1:6201']}\n  b: {build: b, ports: ['2:6201'], depends_on: [c]}\n  c: {image: 'redis:7'}\n", "a/Dockerfile": jail, "a/flag": "f{a}", "b/Dockerfile": jail, "b/flag": "f{b}"},
			want: "a, f{a}, [a /flag 6201:publicPort nested]; b, f{b}, [b /flag 6201:publicPort nested], [c none 6379:internalPort]",
		},
		"one challenge that sources connect": {
			split: true, files: map[string]string{"compose.yaml": "services:\n  proxy: {build: proxy, ports: ['1:80']}\n  web: {build: web, ports: ['2:80']}\n", "proxy/Dockerfile": "FROM nginx\nCOPY nginx.conf /etc/nginx/\n", "proxy/nginx.conf": "proxy_pass http://web:80;", "web/Dockerfile": "FROM debian\nENV FLAG=f{a}\n"},
			want: "001, f{a}, [proxy none 80:publicHttpRoute], [web $FLAG 80:publicHttpRoute]",
		},
		"one challenge with a browser": {
			split: true, files: map[string]string{"compose.yaml": "services:\n  web: {image: 'example.com/a:1', ports: ['1:80']}\n  bot: {build: bot, ports: ['2:3000']}\n", "bot/Dockerfile": "FROM node\nRUN npx playwright install\nENV FLAG=f{a}\n"},
			want: "001, f{a}, [web none 80:publicHttpRoute], [bot $FLAG 3000:publicHttpRoute]",
		},
		"kCTF with a route that ends TLS": {
			files: map[string]string{"challenge.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\n" + kctf + "  network: {ports: [{protocol: TCP, targetPort: 1337}]}\n---\napiVersion: traefik.io/v1alpha1\nkind: IngressRouteTCP\nmetadata: {name: r}\nspec: {tls: {secretName: s}}\n"},
			want:  "a, [a none 1337:publicTlsRoute]", said: []string{"challenge.yaml:2: kind: ConfigMap c: is left out: write its content", "challenge.yaml:13: kind: IngressRouteTCP r: is left out: the operator makes a route"},
		},
		"kCTF with a route for HTTP": {
			files: map[string]string{"challenge.yaml": kctf + "  network: {ports: [{protocol: TCP, targetPort: 1337}]}\n---\napiVersion: traefik.io/v1alpha1\nkind: IngressRoute\nmetadata: {name: r}\n"},
			want:  "a, [a none 1337:publicHttpRoute]",
		},
		"kCTF that players reach with ncat --ssl": {
			files: map[string]string{"challenge.yaml": kctf, "challenge.yml": "name: A\ncategory: pwn\ndescription: '`ncat --ssl a.example.com 1337`'\n"},
			want:  "a, A, pwn, [a none 1337:publicTlsRoute]",
		},
		"labels of Traefik": {
			files: map[string]string{"compose.yaml": "services:\n  a:\n    image: example.com/a:1\n    expose: ['9000']\n    ports: ['1337:7352']\n    labels:\n    - traefik.tcp.routers.${COMPOSE_PROJECT_NAME}.tls=true\n    - traefik.tcp.services.a.loadbalancer.server.port=7352\n    - traefik.http.services.b.loadbalancer.server.port=9000\n"},
			want:  "001, [a none 9000:publicHttpRoute 7352:publicTlsRoute]", said: []string{"compose.yaml:6: a: labels: 7352: players reach this port"},
		},
		"labels of other proxies": {files: map[string]string{"compose.yaml": "services:\n  a: {image: 'example.com/a:1', labels: {caddy.reverse_proxy: '{{upstreams 1234}}'}}\n  b: {image: 'example.com/b:1', environment: [VIRTUAL_PORT=4321]}\n"}, want: "001, [a none 1234:publicHttpRoute], [b none 4321:publicHttpRoute VIRTUAL_PORT=4321]"},
		"two folders of one name": {
			files: map[string]string{"pwn/echo/compose.yaml": "services: {a: {image: 'example.com/a:1', ports: ['1:1337']}}\n", "web/echo/compose.yaml": "services: {a: {image: 'example.com/b:1', ports: ['1:80']}}\n"},
			want:  "echo, [a none 1337:publicPort]; web-echo, [a none 80:publicHttpRoute]", said: []string{"name: web-echo: another Challenge is called echo"},
		},
		"klodd next to a compose file": {
			files: map[string]string{"compose.yaml": "services: {a: {image: 'example.com/a:1', ports: ['1:1337']}}\n", "challenge.yml": "apiVersion: klodd.tjcsec.club/v1\nkind: Challenge\n"},
			want:  "001, [a none 1337:publicPort]", said: []string{"challenge.yml: file: is left out, since "},
		},
		"TOML, and a solidity file below":          {files: map[string]string{"challenge.toml": "a = 1\n", "chall/Dockerfile": "FROM debian\nEXPOSE 80\n", "chall/sol/challenge.yaml": "name: a\nflag: b\n"}, want: "001, [c-001 none 80:publicHttpRoute]", said: []string{"challenge.toml: file: is TOML, and is not read"}},
		"an empty compose file next to Dockerfile": {files: map[string]string{"compose.yaml": "# nothing\n", "Dockerfile": "FROM debian\nEXPOSE 80\n"}, want: "001, [c-001 none 80:publicHttpRoute]", said: []string{"compose.yaml: file: is not understood, and not imported: is empty"}},
		"a compose file without services":          {files: map[string]string{"compose.yaml": "services:\n", "Dockerfile": "FROM debian\nEXPOSE 80\n"}, want: "001, [c-001 none 80:publicHttpRoute]", said: []string{"not imported: must be a compose file: it has no services"}},
		"a Dockerfile of the solution":             {files: map[string]string{"Dockerfile": "FROM debian\nEXPOSE 80\n", "Dockerfile.solve": "FROM a\n", "dev.Dockerfile": "FROM a\n"}, want: "001, [c-001 none 80:publicHttpRoute]", said: []string{"Dockerfile.solve: folder: is left out", "dev.Dockerfile: folder: is left out"}},
		"a random name in a start script": {
			files: map[string]string{"Dockerfile": "FROM debian\nCOPY flag.txt start.sh /\nEXPOSE 80\nCMD [\"/start.sh\"]\n", "flag.txt": "HTB{a}", "start.sh": "#!/bin/sh\nFLAG=$(head -c 9 /dev/urandom | base64)\nmv /flag.txt /flag_$FLAG\n"},
			want:  "001, HTB{a}, [c-001 none 80:publicHttpRoute]", said: []string{"start.sh: mv /flag.txt /flag_$FLAG: the path of the flag is not certain"},
		},
		"a variable of a program":    {files: map[string]string{"Dockerfile": "FROM php\nCOPY a.php /\nEXPOSE 80\nCMD [\"php\", \"/a.php\"]\n", "a.php": "<?php $flag = 'x'; echo $flag;"}, want: "001, [c-001 none 80:publicHttpRoute]"},
		"a variable of Rust or Deno": {files: map[string]string{"Dockerfile": "FROM denoland/deno\nCOPY a.ts /\nEXPOSE 80\nCMD [\"run\", \"/a.ts\"]\n", "a.ts": "Deno.env.get('MY_FLAG')"}, want: "001, [c-001 $MY_FLAG 80:publicHttpRoute]"},
		"a variable that is not set": {
			files: map[string]string{"Dockerfile": "FROM debian\nCOPY flag.txt start.sh /\nEXPOSE 80\nCMD [\"/start.sh\"]\n", "flag.txt": "f{a}", "start.sh": "#!/bin/sh\nmysql -e \"INSERT INTO f VALUES ('$FLAG')\"\n"},
			want:  "001, f{a}, [c-001 /flag.txt 80:publicHttpRoute]", said: []string{"start.sh:2: 001: flag: FLAG: reads the flag from this variable, which is not set"},
		},
		"variables about flags": {
			files: map[string]string{"compose.yaml": "services:\n  a:\n    image: example.com/a:1\n    ports: ['1:1337']\n    environment: {FLAG_FORMAT: 'flag{.*}', CTF_FLAG_REGEX: 'ctf{[a-z]}', FAKE_FLAG: 'flag{no}', REAL_FLAG: 'flag{a}'}\n"},
			want:  "001, flag{a}, [a $REAL_FLAG 1337:publicPort CTF_FLAG_REGEX=ctf{[a-z]} FAKE_FLAG=flag{no} FLAG_FORMAT=flag{.*}]",
		},
		"several flags": {
			files: map[string]string{"compose.yaml": "services:\n  a:\n    image: example.com/a:1\n    ports: ['1:1337']\n    environment: {FLAG1: 'f{1}', FLAG2: 'f{2}', FLAG_USER: 'f{3}'}\n"},
			want:  "", said: []string{"environment: FLAG2: a container gets the flag in one way", "environment: FLAG_USER: a container gets the flag in one way"},
		},
		"a flag with an odd prefix":          {files: map[string]string{"Dockerfile": "FROM debian\nCOPY flag.txt /\nEXPOSE 80\n", "flag.txt": ".;,;.{a}"}, want: "001, .;,;.{a}, [c-001 /flag.txt 80:publicHttpRoute]"},
		"a server of Python with an address": {files: map[string]string{"Dockerfile": "FROM python\nCMD python3 -m http.server --bind 0.0.0.0 9001\n"}, want: "001, [c-001 none 9001:publicHttpRoute]"},
		"a network of another container":     {files: map[string]string{"compose.yaml": "services:\n  a: {image: 'example.com/a:1', ports: ['1:80'], container_name: x, cpu_count: 1}\n  b: {image: 'example.com/b:1', network_mode: 'service:a'}\n"}, want: "001, [a none 80:publicHttpRoute], [b none]", said: []string{"use a in place of localhost", "cpu_count: 1: means something on Windows only", "a: hostname: x: other containers"}},
		"a flag in ENTRYPOINT":               {files: map[string]string{"Dockerfile": "FROM debian\nEXPOSE 80\nENTRYPOINT [\"run\", \"bctf{win}\"]\n"}, want: "001, [c-001 none 80:publicHttpRoute]", said: []string{"Dockerfile: 001: flag: bctf{win}: is a flag that all players share, in ENTRYPOINT"}},
		"an image for Windows":               {files: map[string]string{"Dockerfile": "FROM mcr.microsoft.com/windows/servercore:ltsc2022\nEXPOSE 80\n"}, want: "001, [c-001 none 80:publicHttpRoute]", said: []string{"is an image for Windows"}},
		"GZCTF": {
			files: map[string]string{"challenge.yml": "name: G\ntype: DynamicContainer\nvalue: 100\ncontainer: {flagTemplate: 'FLAG{a_[TEAM_HASH]}', containerImage: '{{.slug}}:latest', memoryLimit: 512, cpuCount: 3, storageLimit: 1, exposePort: 8011}\n", "src/Dockerfile": "FROM debian\n"},
			want:  "001, G, 100, [c-001 $GZCTF_FLAG 8011:publicPort]", said: []string{"challenge.yml:4: 001: storageLimit: 1: a Challenge has no such field"},
		},
		"rCTF next to a compose file": {
			files: map[string]string{"challenge.yaml": "name: a\nflag: &flag 'f{a}'\ncontainers: {a: {build: ., ports: [4000], environment: {FLAG: *flag}, securityContext: {privileged: true, readOnlyRootFilesystem: true}}}\nexpose: {a: [{target: 4000, tcp: 31337}]}\n", "compose.yaml": "services: {a: {build: ., ports: ['1:4000']}}\n", "Dockerfile": "FROM debian\n"},
			want:  "001, a, f{a}, [a $FLAG 4000:publicPort nested]", said: []string{"compose.yaml: file: is left out, since ", "challenge.yaml:3: a: readOnlyRootFilesystem"},
		},
		"a variable in the sources of another container": {
			files: map[string]string{"compose.yaml": "services:\n  web: {build: {context: ., dockerfile: web.Dockerfile}, ports: ['1:80']}\n  bot: {build: {context: ., dockerfile: bot.Dockerfile}}\n", "web.Dockerfile": "FROM debian\nCOPY web /\n", "bot.Dockerfile": "FROM node\nCOPY bot/bot.js /\nCMD [\"node\", \"/bot.js\"]\n", "bot/bot.js": "process.env.FLAG"},
			want:  "001, [web none 80:publicHttpRoute], [bot $FLAG]",
		},
		"a privileged container without a jail": {
			files: map[string]string{"compose.yaml": "services:\n  a:\n    build: .\n    ports: ['1:1337']\n    privileged: true\n", "Dockerfile": "FROM debian\nCMD qemu-system-x86_64 -enable-kvm\n"},
			want:  "001, [a none 1337:publicPort nested]", said: []string{"compose.yaml:5: a: privileged: becomes sandbox: nested, which allows namespaces alone"},
		},
		"ctfcli with words for players": {files: map[string]string{"challenge.yml": "name: a\ncategory: web\nconnection_info: http://a and the user guest\n", "Dockerfile": "FROM debian\nEXPOSE 80\n"}, want: "001, a, web, [c-001 none 80:publicHttpRoute]", said: []string{"challenge.yml:3: connection_info: http://a and the user guest: players see the addresses"}},
		"flags in mounted files": {
			files: map[string]string{"compose.yaml": "services:\n  a: {image: 'mysql:8', ports: ['1:3306'], volumes: ['./init.sql:/docker-entrypoint-initdb.d/init.sql', './src:/src']}\n", "init.sql": "-- a\nINSERT INTO a VALUES ('flag{in_sql}');", "src/a.php": "<?php\n\n// flag{in_php}\n"},
			want:  "001, [a none 3306:publicPort]", said: []string{"init.sql:2: a: flag: flag{in_sql}: is a flag that all players share", "src/a.php:3: a: flag: flag{in_php}: is a flag"},
		},
		"a privileged browser that speaks HTTP": {
			files: map[string]string{"compose.yaml": "services:\n  a: {build: ., ports: ['1337:1337'], cap_add: [SYS_ADMIN]}\n", "Dockerfile": "FROM node\nRUN npx playwright install chromium\nCOPY bot.js /\nCMD [\"node\", \"/bot.js\"]\n", "bot.js": "require('express')()"},
			want:  "001, [a none 1337:publicHttpRoute nested]",
		},
		"several challenges, split": {
			split: true, files: map[string]string{"compose.yaml": "services:\n  a: {image: 'example.com/a:1', ports: ['1:80'], networks: [x]}\n  b: {image: 'example.com/b:1', ports: ['2:80'], networks: [y]}\n  db: {image: 'redis:7', networks: [y]}\nnetworks: {x: , y: }\n"},
			want: "a, [a none 80:publicHttpRoute]; y, [b none 80:publicHttpRoute], [db none 6379:internalPort]",
		},
		"one challenge in two networks": {
			split: true, files: map[string]string{"compose.yaml": "services:\n  a: {image: 'example.com/a:1', ports: ['1:80'], networks: [x]}\n  b: {image: 'example.com/b:1', ports: ['2:80'], networks: [y], depends_on: [a]}\nnetworks: {x: , y: }\n"},
			want: "001, [a none 80:publicHttpRoute], [b none 80:publicHttpRoute]",
		},
		"files of the host": {
			files: map[string]string{"compose.yaml": "services:\n  a:\n    image: example.com/a:1\n    ports: ['80:80']\n    volumes: ['/etc/localtime:/etc/localtime:ro', '/etc/timezone:/etc/timezone', './data:/data']\n"},
			want:  "001, [a none 80:publicHttpRoute]", said: []string{"compose.yaml:5: a: volumes: /etc/localtime:/etc/localtime:ro: is a file of the host, and is not needed", "./data:/data: a container has no volumes"},
		},
		"build options and devices": {
			files: map[string]string{
				"Dockerfile": "FROM debian\nARG A\nARG B\nARG C\n",
				".env":       "B=b\n",
				"compose.yaml": "services:\n  a:\n    build: {context: ., args: [A, B, C=c], secrets: [k], additional_contexts: {x: ./y}, platforms: [linux/arm64]}\n    ports: ['80:80']\n" +
					"    deploy: {resources: {reservations: {devices: [{capabilities: [gpu]}]}}, restart_policy: {condition: none}}\nsecrets: {k: {environment: K}}\n",
			},
			want: "001, [a none 80:publicHttpRoute]",
			said: []string{"compose.yaml:3: a: build: A: has its value from the shell", "add --secret", "add --build-context", "a: build: linux/arm64", "compose.yaml:5: a: deploy: devices: no container gets a device", "restart_policy: none"},
		},
		"a start script with Windows line endings": {
			files: map[string]string{"Dockerfile": "FROM debian\nCOPY start.sh /\nEXPOSE 80\nCMD [\"/start.sh\"]\n", "start.sh": "#!/bin/sh\r\nexec run\r\n"},
			want:  "001, [c-001 none 80:publicHttpRoute]", said: []string{"build: start.sh: has Windows line endings"},
		},
		"a start script with a byte order mark": {
			files: map[string]string{"Dockerfile": "FROM debian\nCOPY start.sh /\nEXPOSE 80\nENTRYPOINT [\"/start.sh\"]\n", "start.sh": "\ufeff#!/bin/sh\nexec run\n"},
			want:  "001, [c-001 none 80:publicHttpRoute]", said: []string{"build: start.sh: begins with a byte order mark"},
		},
		"an address of its own": {
			files: map[string]string{"compose.yaml": "services:\n  a:\n    image: example.com/a:1\n    ports: ['80:80']\n    networks: {n: {ipv4_address: 172.16.0.4}}\nnetworks: {n: }\n"},
			want:  "001, [a none 80:publicHttpRoute]", said: []string{"compose.yaml:5: a: networks: 172.16.0.4: the cluster gives addresses"},
		},
		"no Dockerfile": {files: map[string]string{"compose.yaml": "services:\n  a: {build: ./web, ports: ['80:80']}\n"}, want: "001, [a none 80:publicHttpRoute]", said: []string{"web/Dockerfile: does not exist, so that docker build fails"}},
		"a start script writes a variable": {
			files: map[string]string{"Dockerfile": "FROM debian\nCOPY start.sh /\nEXPOSE 80\nCMD [\"/start.sh\"]\n", "start.sh": "#!/bin/sh\nprintf '%s' \"${TEAM_SECRET}\" | tee /home/ctf/flag\nexec run\n"},
			want:  "001, [c-001 $TEAM_SECRET 80:publicHttpRoute]",
		},
		"a command writes a variable": {
			files: map[string]string{"compose.yaml": "services:\n  a:\n    image: example.com/a:1\n    ports: ['80:80']\n    environment: {KEY: 'x{y}'}\n    command: sh -c 'echo $$KEY > /flag.txt; exec run'\n"},
			want:  "001, x{y}, [a $KEY 80:publicHttpRoute]",
		},
		"a start script with its own flag": {
			files: map[string]string{"Dockerfile": "FROM debian\nCOPY start.sh /\nEXPOSE 80\nCMD [\"/start.sh\"]\n", "start.sh": "#!/bin/sh\nVALUE=flag{all}\necho $VALUE > /flag\n"},
			want:  "001, [c-001 none 80:publicHttpRoute]", said: []string{"start.sh:2: 001: flag: flag{all}: is a flag that all players share"},
		},
		"a flag in a source": {
			files: map[string]string{"Dockerfile": "FROM debian\nCOPY . /app\nEXPOSE 80\n", "lib/flag.py": "# ctf\nflag = 'CTF{all}'\n", "solve/solve.py": "CTF{all}", "app.js": "process.env.FLAG || 'flag{dev}'"},
			want:  "001, [c-001 $FLAG 80:publicHttpRoute]", said: []string{"lib/flag.py:2: 001: flag: CTF{all}: is a flag that all players share"},
		},
		"sed in a start script": {
			files: map[string]string{"Dockerfile": "FROM debian\nCOPY start.sh /\nEXPOSE 80\nCMD [\"/start.sh\"]\n", "start.sh": "#!/bin/sh\nsed -i \"s/PLACEHOLDER/$FLAG/\" /app/index.php\n"},
			want:  "001, [c-001 $FLAG 80:publicHttpRoute]", said: []string{"sed -i \"s/PLACEHOLDER/$FLAG: a flag with &, / or \\ arrives changed"},
		},
		"a flag in a variable and in a file": {
			files: map[string]string{"Dockerfile": "FROM debian\nENV FLAG=flag{a}\nCOPY flag.txt /\nEXPOSE 80\n", "flag.txt": "flag{a}"},
			want:  "001, flag{a}, [c-001 $FLAG 80:publicHttpRoute]", said: []string{"Dockerfile:3: 001: flag: /flag.txt: a container gets the flag in one way: this file keeps what the image has, for all players"},
		},
		"a flag in a command": {
			files: map[string]string{"compose.yaml": "services:\n  a: {image: 'example.com/a:1', ports: ['80:80'], command: [run, --flag, 'flag{all}'], environment: {URL: 'http://a/?flag{all}'}}\n"},
			want:  "001, [a none 80:publicHttpRoute URL=http://a/?flag{all}]", said: []string{"compose.yaml:2: a: command", "compose.yaml:2: a: environment: URL: has a flag that all players share"},
		},
		"variables with paths":    {files: map[string]string{"compose.yaml": "services:\n  a: {image: 'example.com/a:1', ports: ['80:80'], environment: {FLAG: data/flag, MY_FLAG: flag.dat, FLAG_1: '~/flag', FLAG_2: '../flag'}}\n"}, want: "", said: []string{"no variable and no file with the flag was found: all players share what the image has. Add"}},
		"an assembler source":     {files: map[string]string{"Dockerfile": "FROM debian\nCOPY flag.s flag.S flag.asm /src/\nEXPOSE 80\n", "flag.s": ".text"}, want: "001, [c-001 none 80:publicHttpRoute]"},
		"an empty flag":           {files: map[string]string{"Dockerfile": "FROM debian\nCOPY flag.txt /\nEXPOSE 80\n", "flag.txt": ""}, want: "001, [c-001 /flag.txt 80:publicHttpRoute]"},
		"a .env that is a folder": {files: map[string]string{".env/a": "", "compose.yaml": "services: {a: {image: 'example.com/a:1', ports: ['80:80']}}\n"}, want: "001, [a none 80:publicHttpRoute]"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := importFiles(t, tc.files, importer.Options{Split: tc.split})
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(result); tc.want != "" && got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			notes := ""
			for _, n := range append(append(result.Questions, result.Lost...), result.Chosen...) {
				notes += n.String() + "\n"
			}
			for _, said := range tc.said {
				if !strings.Contains(notes, said) {
					t.Errorf("not said: %s\n%s", said, notes)
				}
			}
		})
	}
}

// Only base images and commands make a jail.
func TestAJailIsFoundByImagesAndCommands(t *testing.T) {
	for dockerfile, jail := range map[string]bool{
		"FROM debian\nRUN echo nsjail is fun": false, "FROM debian\nLABEL about='no kctf_setup, no nsjail'": false, "FROM debian\n# nsjail\nENV A=bwrap": false, "FROM debian\nCOPY nsjail.cfg /": false,
		"FROM debian\nWORKDIR /nsjail\nUSER kctf_user": false, "FROM example.com/kctf-writeups/nginx": false, "FROM debian\nRUN useradd nsjail-user": false, "FROM debian\nEXPOSE 80\nCMD [\"/start.sh\"]": true,
		"FROM disconnect3d/nsjail:3": true, "FROM pwn.red/jail": true, "FROM redpwn/jail:v0.3": true, "FROM debian\nCOPY --from=pwn.red/jail / /": true, "FROM debian\nRUN apt-get install -y bubblewrap": true,
		"FROM debian\nRUN git clone https://github.com/google/nsjail.git": true, "FROM debian\nENTRYPOINT [\"/usr/bin/nsjail\", \"--config\", \"/a\"]": true, "FROM debian AS jail\nFROM nginx\nCOPY --from=jail /a /a": false, "FROM cybersecnatlab/challenge-jail@sha256:0a": true, "FROM debian AS a\nFROM nginx\nCOPY --from=a /bin/nsjail /bin/": true,
	} {
		result, err := importFiles(t, map[string]string{"Dockerfile": dockerfile + "\n", "start.sh": "#!/bin/sh\nexec nsjail -Ml\n"}, importer.Options{})
		if err != nil || len(result.Challenges) != 1 {
			t.Fatalf("%q: %v", dockerfile, err)
		}
		if got := result.Challenges[0].Spec.Containers[0].Sandbox == bergv1.SandboxNested; got != jail {
			t.Errorf("%q: jail %t", dockerfile, got)
		}
	}
}

// A file with nothing in it is called empty.
func TestEmptyFilesAreCalledEmpty(t *testing.T) {
	for name, content := range map[string]string{"compose.yaml": "", "compose.yml": "---\n# services:\n---\n", "docker-compose.yml": "null\n", "docker-compose.yaml": "# a\n\n", "Dockerfile": ""} {
		result, err := importFiles(t, map[string]string{name: content}, importer.Options{})
		said := fmt.Sprint(err)
		for _, n := range result.Lost {
			said += n.String()
		}
		if !strings.Contains(said, "is empty") {
			t.Errorf("%s %q: %s", name, content, said)
		}
	}
	if _, err := importer.Content(nil, importer.Options{}); err == nil || !strings.Contains(err.Error(), "standard input: is empty") {
		t.Errorf("standard input: %v", err)
	}
}
