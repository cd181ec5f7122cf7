package main

// blueprint is a Challenge, and what an instance of it consists of.
type blueprint struct {
	spec string
	// objects are those of an instance, but for the namespace, the policy, the copied
	// pull secret and what Kubernetes adds.
	objects []string
	// starts is whether its pods become ready.
	starts bool
	// builds is whether it can be built at all: one that cannot never starts to
	// count its time.
	builds bool
}

// pulledAhead is the Challenge whose images are pulled before it is started.
const pulledAhead = "plain"

// few is the Challenge with a bound of its own on the instances that are started: roomForFew.
const few = "pwn"

// blueprints are what lives are made of: every kind of flag and port, pods that are
// slow or never ready, and what cannot be built.
var blueprints = map[string]blueprint{
	"web": {
		spec: `containers: [{hostname: web, image: "example.com/web:1", dynamicFlag: {env: {name: FLAG}},
  ports: [{name: site, port: 8080, type: publicHttpRoute}]}]`,
		objects: []string{"Deployment/web", "Service/web", "HTTPRoute/web-8080", "PodDisruptionBudget/web-pdb"},
		starts:  true, builds: true,
	},
	few: {
		spec: `containers: [{hostname: kiosk, image: "example.com/pwn:1", dynamicFlag: {content: {path: "/flag-{entropy}.txt"}},
  ports: [{port: 1337, type: publicPort}, {name: voice, port: 5060, protocol: udp, type: publicPort}]}]`,
		objects: []string{
			"Deployment/kiosk", "Service/kiosk", "Service/kiosk-node-port", "ConfigMap/flag-content", "PodDisruptionBudget/kiosk-pdb",
		},
		starts: true, builds: true,
	},
	"shop": {
		spec: `
allowOutboundTraffic: true
containers:
- hostname: web
  image: "example.com/shop:1"
  ports: [{name: shop, port: 8080, type: publicHttpRoute}, {name: vault, port: 8443, type: publicTlsRoute}]
- hostname: database
  image: "example.com/database:1"
  ports: [{name: db, port: 5432}]
  dynamicFlag: {executable: {path: "/opt/{entropy}/get_flag"}}
- hostname: bot
  image: "berg.test/behaviour/slow:1"
  additionalCapabilities: [NET_ADMIN]`,
		objects: []string{
			"Deployment/web", "Deployment/database", "Deployment/bot", "Service/web", "Service/database", "Service/bot",
			"HTTPRoute/web-8080", "TLSRoute/web-8443", "ConfigMap/flag-executable",
			"PodDisruptionBudget/web-pdb", "PodDisruptionBudget/database-pdb", "PodDisruptionBudget/bot-pdb",
		},
		starts: true, builds: true,
	},
	pulledAhead: {
		spec:    `{prepull: true, containers: [{hostname: box, image: "example.com/box:1"}]}`,
		objects: []string{"Deployment/box", "PodDisruptionBudget/box-pdb", "Service/box"},
		starts:  true, builds: true,
	},
	"crash": {
		spec:    `containers: [{hostname: box, image: "berg.test/behaviour/crash:1", ports: [{port: 1, type: publicPort}]}]`,
		objects: []string{"Deployment/box", "Service/box", "Service/box-node-port", "PodDisruptionBudget/box-pdb"},
		builds:  true,
	},
	"empty":   {spec: `containers: []`},
	"unknown": {}, // is never written
}

// The names are lists, since the order of a map is not the seed's.
var (
	sound  = []string{"web", "pwn", "shop", "plain"}
	broken = []string{"crash", "empty", "unknown"}
)
