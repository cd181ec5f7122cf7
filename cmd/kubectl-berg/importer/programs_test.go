package importer_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/importer"
)

// importProgram imports a folder with a Dockerfile.
func importProgram(t *testing.T, dockerfile string, files map[string]string) (importer.Result, error) {
	t.Helper()
	files = maps.Clone(files)
	files["Dockerfile"] = dockerfile
	return importFiles(t, files, importer.Options{})
}

// Ports and their types follow from instructions, programs, the files of servers and, for a compiled program, its sources.
func TestPortsOfPrograms(t *testing.T) {
	for _, tc := range []struct {
		dockerfile string
		files      map[string]string
		want       string
	}{
		{"FROM nginx\nCOPY nginx.conf /etc/nginx/conf.d/default.conf\n", map[string]string{"nginx.conf": "server {\n  listen 8080 default_server;\n}\n"}, "8080:publicHttpRoute"},
		{"FROM nginx:alpine\nCOPY conf/ /etc/nginx/\n", map[string]string{"conf/nginx.conf": "http { server { listen 0.0.0.0:1337; } }\n"}, "1337:publicHttpRoute"},
		{"FROM php:8-apache\nCOPY ports.conf /etc/apache2/ports.conf\n", map[string]string{"ports.conf": "Listen 8081\n"}, "8081:publicHttpRoute"},
		{"FROM ubuntu:22.04\nRUN apt-get install -y xinetd\nCOPY ctf.xinetd /etc/xinetd.d/ctf\nCOPY start.sh /\nCMD [\"/start.sh\"]\n", map[string]string{"ctf.xinetd": "service ctf\n{\n    disable = no\n    port        = 9999\n}\n", "start.sh": "#!/bin/sh\n/etc/init.d/xinetd start;\nsleep infinity;\n"}, "9999:publicPort"},
		{"FROM node:20\nCOPY server.js .\nCMD [\"node\",\"server.js\"]\n", map[string]string{"server.js": "app.listen(process.env.PORT ?? 4321)"}, "4321:publicHttpRoute"},
		{"FROM python:3\nCOPY app.py /\nCMD [\"python\",\"/app.py\"]\n", map[string]string{"app.py": "app.run(host='0.0.0.0', port=int(os.getenv('PORT', 5050)))"}, "5050:publicHttpRoute"},
		{"FROM python:3\nCOPY app.py /\nCMD [\"python3\",\"-u\",\"/app.py\"]\n", map[string]string{"app.py": "HOST, PORT = \"0.0.0.0\", 9001\nwith socketserver.ThreadingTCPServer((HOST, PORT), H) as s: s.serve_forever()"}, "9001:publicPort"},
		{"FROM golang AS b\nCOPY . .\nRUN go build -o /app .\nFROM scratch\nCOPY --from=b /app /app\nENTRYPOINT [\"/app\"]\n", map[string]string{"main.go": "http.ListenAndServe(\":8085\", nil)"}, "8085:publicHttpRoute"},
		{"FROM rust AS b\nCOPY . .\nRUN cargo build --release\nFROM debian\nCOPY --from=b /target/release/app /app\nCMD [\"/app\"]\n", map[string]string{"src/main.rs": "let l = TcpListener::bind(\"0.0.0.0:1234\").await?;"}, "1234:publicPort"},
		{"FROM eclipse-temurin\nCOPY a.jar /\nCMD [\"java\",\"-Dserver.port=8089\",\"-jar\",\"/a.jar\"]\n", map[string]string{}, "8089:publicHttpRoute"},
		{"FROM python:3\nCMD gunicorn -w 4 -b :5005 app:app\n", map[string]string{}, "5005:publicHttpRoute"},
		{"FROM python:3\nCMD [\"gunicorn\",\"--bind\",\"0.0.0.0:5006\",\"app:app\"]\n", map[string]string{}, "5006:publicHttpRoute"},
		{"FROM python:3\nCOPY uwsgi.ini .\nCMD [\"uwsgi\",\"--ini\",\"uwsgi.ini\"]\n", map[string]string{"uwsgi.ini": "[uwsgi]\nhttp = 0.0.0.0:5007\n"}, "5007:publicHttpRoute"},
		{"FROM php:8-cli\nCMD [\"php\",\"-S\",\"0.0.0.0:8008\",\"-t\",\"/app\"]\n", map[string]string{}, "8008:publicHttpRoute"},
		{"FROM caddy:2\nCOPY Caddyfile /etc/caddy/Caddyfile\n", map[string]string{"Caddyfile": ":8090 {\n respond \"x\"\n}\n"}, "8090:publicHttpRoute"},
		{"FROM tsl0922/ttyd\nCMD [\"ttyd\",\"-W\",\"bash\"]\n", map[string]string{}, "7681:publicHttpRoute"},
		{"FROM disconnect3d/nsjail\nCOPY nsjail.cfg /\nCMD [\"nsjail\",\"--config\",\"/nsjail.cfg\"]\n", map[string]string{"nsjail.cfg": "mode: LISTEN\nport: 31337\n"}, "31337:publicPort"},
		{"FROM cybersecnatlab/socaz\nCMD socaz --timeout 60 --bind 5000 --cmd ./chal\n", map[string]string{}, "5000:publicPort"},
		{"FROM python:3\nRUN apt-get install -y socat ncat\nCOPY app.py /\nEXPOSE 1337\nCMD [\"python3\", \"/app.py\"]\n", map[string]string{"app.py": "from flask import Flask"}, "1337:publicHttpRoute"},
		{"FROM debian\nCMD ncat -klvp 4000 -e /chal\n", map[string]string{}, "4000:publicPort"},
		{"FROM debian\nENV PORT=6000\nCMD socat -d TCP-LISTEN:$PORT,reuseaddr,fork EXEC:/x\n", map[string]string{}, "6000:publicPort"},
		{"FROM debian\nENTRYPOINT [\"socat\",\"TCP6-LISTEN:6001,fork,reuseaddr\",\"EXEC:./x\"]\n", map[string]string{}, "6001:publicPort"},
		{"FROM python:3\nCMD [\"uvicorn\",\"main:app\",\"--host\",\"0.0.0.0\",\"--port\",\"80\"]\n", map[string]string{}, "80:publicHttpRoute"},
		{"FROM node:20\nCOPY . .\nCMD [\"npm\",\"run\",\"start\"]\n", map[string]string{"package.json": "{\"scripts\":{\"start\":\"next start -p 3005\"}}"}, "3005:publicHttpRoute"},
		{"FROM node:20\nCOPY . .\nCMD [\"npm\",\"start\"]\n", map[string]string{"package.json": "{\"scripts\":{\"start\":\"node src/index.js\"}}", "src/index.js": "const port = 3006;\napp.listen(port)"}, "3006:publicHttpRoute"},
		{"FROM oven/bun\nCOPY . .\nCMD [\"bun\",\"run\",\"index.ts\"]\n", map[string]string{"index.ts": "Bun.serve({ port: 3007, fetch() {} })"}, "3007:publicHttpRoute"},
		{"FROM pwn.red/jail\nCOPY --from=ubuntu / /srv\n", map[string]string{}, "5000:publicPort"},
		{"FROM mcr.microsoft.com/dotnet/aspnet:8.0\nENV ASPNETCORE_URLS=http://+:5008\nENTRYPOINT [\"dotnet\",\"x.dll\"]\n", map[string]string{}, "5008:publicHttpRoute"},
		{"FROM mcr.microsoft.com/dotnet/aspnet:8.0\nENTRYPOINT [\"dotnet\",\"x.dll\"]\n", map[string]string{}, "8080:publicHttpRoute"},
		{"FROM debian\nRUN apt-get install -y openssh-server\nCMD [\"/usr/sbin/sshd\",\"-D\",\"-p\",\"2022\"]\n", map[string]string{}, "2022:publicPort"},
		{"FROM ruby:3\nCOPY app.rb .\nCMD [\"ruby\",\"app.rb\",\"-o\",\"0.0.0.0\"]\n", map[string]string{"app.rb": "require 'sinatra'\nset :port, 4568\n"}, "4568:publicHttpRoute"},
		{"FROM ruby:3\nCOPY app.rb Gemfile .\nCMD [\"ruby\",\"app.rb\",\"-o\",\"0.0.0.0\"]\n", map[string]string{"app.rb": "require 'sinatra'\n", "Gemfile": "gem 'sinatra'"}, "4567:publicHttpRoute"},
		{"FROM python:3\nCOPY supervisord.conf /etc/\nCMD [\"supervisord\",\"-c\",\"/etc/supervisord.conf\"]\n", map[string]string{"supervisord.conf": "[program:a]\ncommand=gunicorn -b 0.0.0.0:5010 app:app\n"}, "5010:publicHttpRoute"},
		{"FROM debian\nEXPOSE 5353/udp 80\n", map[string]string{}, "5353:publicPort 80:publicHttpRoute"},
		{"FROM python:3\nRUN pip install flask\nEXPOSE 1337\nCMD python app.py\n", map[string]string{}, "1337:publicHttpRoute"},
		{"FROM python:3\nRUN apt-get install -y socat\nEXPOSE 5000\nCMD socat TCP-LISTEN:5000,fork EXEC:'python3 x.py'\n", map[string]string{}, "5000:publicPort"},
		{"FROM python:3\nCOPY server.py /\nEXPOSE 8000\nCMD [\"python3\",\"/server.py\"]\n", map[string]string{"server.py": "import socketserver\nclass H(socketserver.BaseRequestHandler): pass\nsocketserver.TCPServer(('0.0.0.0',8000),H).serve_forever()"}, "8000:publicPort"},
		{"FROM python:3\nCOPY server.py requirements.txt /\nEXPOSE 5000\nCMD [\"python3\",\"/server.py\"]\n", map[string]string{"server.py": "import asyncio\nasyncio.start_server(h, '0.0.0.0', 5000)", "requirements.txt": "pycryptodome\n"}, "5000:publicPort"},
		{"FROM node:20\nCOPY s.js /\nEXPOSE 3000\nCMD [\"node\",\"/s.js\"]\n", map[string]string{"s.js": "require('net').createServer(c=>{}).listen(3000)"}, "3000:publicPort"},
	} {
		result, err := importProgram(t, tc.dockerfile, tc.files)
		if err != nil {
			t.Errorf("%q: %v", tc.dockerfile, err)
			continue
		}
		if got := describe(result); !strings.HasSuffix(strings.TrimSuffix(strings.TrimSuffix(got, "]"), " nested"), " "+tc.want) {
			t.Errorf("%q: %s, want %s", tc.dockerfile, got, tc.want)
		}
	}
}

// The way of the flag follows from variables, copied files and programs. A question is better than a wrong path.
func TestFlagsOfPrograms(t *testing.T) {
	for _, tc := range []struct {
		dockerfile string
		files      map[string]string
		want       string
	}{
		{"FROM debian\nEXPOSE 80\nENTRYPOINT [\"/bin/sh\",\"-c\",\"echo $FLAG > /flag.txt && unset FLAG && exec su ctf -c ./run\"]\n", map[string]string{}, "$FLAG"},
		{"FROM ubuntu AS a\nCOPY flag.txt /flag.txt\nFROM pwn.red/jail\nCOPY --from=a / /srv\nCOPY run /srv/app/run\n", map[string]string{"flag.txt": "flag{a}\n", "run": "x"}, "/srv/flag.txt"},
		{"FROM debian\nCOPY flag.txt /\nRUN mv flag.txt /$(cat /dev/urandom | tr -dc a-z | head -c 9)-flag.txt\nEXPOSE 80\n", map[string]string{"flag.txt": "flag{a}\n"}, "?"},
		{"FROM debian\nCOPY flag.txt /flag.txt\nCOPY entrypoint.sh /entrypoint.sh\nEXPOSE 80\nENTRYPOINT [\"/entrypoint.sh\"]\n", map[string]string{"flag.txt": "flag{a}\n", "entrypoint.sh": "#!/bin/sh\nmv /flag.txt /flag$(cat /dev/urandom | tr -cd \"a-f0-9\" | head -c 10).txt\nexec supervisord\n"}, "?"},
		{"FROM debian\nCOPY flag.txt /flag\nCOPY readflag.c /\nRUN gcc -o /readflag /readflag.c && chmod 4755 /readflag && chmod 400 /flag && rm /readflag.c\nEXPOSE 80\n", map[string]string{"flag.txt": "flag{a}\n", "readflag.c": "int main(){}"}, "/flag"},
		{"FROM python\nCOPY server.py /app/\nEXPOSE 1337\nCMD [\"python3\",\"/app/server.py\"]\n", map[string]string{"server.py": "FLAG = os.environ.get('FLAG', 'flag{fake}')"}, "$FLAG"},
		{"FROM node\nCOPY index.js /app/\nEXPOSE 3000\nCMD [\"node\",\"/app/index.js\"]\n", map[string]string{"index.js": "const { FLAG, PORT = 3000 } = process.env;"}, "$FLAG"},
		{"FROM php:8-apache\nCOPY src/ /var/www/html/\n", map[string]string{"src/index.php": "<?php echo getenv('FLAG');"}, "$FLAG"},
		{"FROM python\nWORKDIR /app\nCOPY . .\nCMD gunicorn -b 0.0.0.0:8000 app:app\n", map[string]string{"app.py": "FLAG = os.environ['FLAG']"}, "$FLAG"},
		{"FROM golang AS b\nCOPY . .\nRUN go build -o /app\nFROM scratch\nCOPY --from=b /app /app\nCMD [\"/app\"]\n", map[string]string{"main.go": "flag := os.Getenv(\"FLAG\")"}, "$FLAG"},
		{"FROM maven AS b\nCOPY . .\nFROM openjdk\nCOPY --from=b /a.jar /a.jar\nCMD [\"java\",\"-jar\",\"/a.jar\"]\n", map[string]string{"src/A.java": "System.getenv(\"FLAG\")"}, "$FLAG"},
		{"FROM python\nCOPY init.sql /\nEXPOSE 80\nCMD run\n", map[string]string{"init.sql": "INSERT INTO flags VALUES ('flag{sql_x}');"}, "?"},
		{"FROM php:8-apache\nCOPY src/ /var/www/html/\n", map[string]string{"src/flag.php": "<?php $flag='flag{php_x}';"}, "?"},
		{"FROM debian\nCOPY <<EOF /flag.txt\nflag{here}\nEOF\nEXPOSE 80\n", map[string]string{}, "/flag.txt"},
		{"FROM debian\nCOPY flag/ /flag/\nEXPOSE 80\n", map[string]string{"flag/flag.txt": "f{a}"}, "/flag/flag.txt"},
		{"FROM debian\nCOPY flag.png /flag.png\nEXPOSE 80\n", map[string]string{"flag.png": "x"}, "?"},
		{"FROM debian\nCOPY flag1.txt flag2.txt /\nEXPOSE 22\n", map[string]string{"flag1.txt": "flag{u}", "flag2.txt": "flag{r}"}, "/flag1.txt"},
		{"FROM debian\nCOPY src /app\nEXPOSE 22\n", map[string]string{"src/a": "x", "dist/flag.txt": "flag{fake}"}, "?"},
		{"FROM debian\nCOPY rootfs /rootfs\nRUN cd /rootfs && find . | cpio -o > /initramfs.cpio\nEXPOSE 1337\n", map[string]string{"rootfs/flag.txt": "f{x}"}, "?"},
	} {
		result, err := importProgram(t, tc.dockerfile, tc.files)
		if err != nil {
			t.Errorf("%q: %v", tc.dockerfile, err)
			continue
		}
		got := flagPath(result.Challenges[0].Spec.Containers[0].DynamicFlag)
		if got == "none" && len(result.Questions) == 1 {
			got = "?"
		}
		if got != tc.want {
			t.Errorf("%q: %s, want %s", tc.dockerfile, got, tc.want)
		}
	}
}
