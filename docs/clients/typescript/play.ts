// Starts an instance of a challenge for a player through berg-api, prints where to connect as soon as it runs, and ends it:
//
//   BERG_API=http://localhost:8080 BERG_TOKEN=... node dist/play.js PLAYER CHALLENGE
//
// The token is for the endpoint v1. Types are those of the OpenAPI document: `npm run types` writes v1.d.ts from it.
import createClient from "openapi-fetch";
import type { components, paths } from "./v1.js";

type Instance = components["schemas"]["Instance"];

const [source, challenge] = process.argv.slice(2);
const { BERG_API: baseUrl, BERG_TOKEN: token } = process.env;
if (!source || !challenge || !baseUrl || !token) {
  console.error("usage: BERG_API=URL BERG_TOKEN=TOKEN node dist/play.js PLAYER CHALLENGE");
  process.exit(2);
}

const api = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
const one = { params: { path: { challenge, source } } };

// An answer is data, or an error whose message says what to do.
function value<T>({ data, error }: { data?: T; error?: { message: string } }): T {
  if (data === undefined) {
    throw new Error(error?.message ?? "the answer is empty");
  }
  return data;
}

// A second request for the same player and challenge returns the same instance, and waits again.
async function start(deadline: number): Promise<Instance> {
  for (;;) {
    const instance = value(await api.PUT("/v1/instances/{challenge}/{source}", { ...one, body: { waitSeconds: 30 } }));
    if (instance.state === "running") {
      return instance;
    }
    console.log(instance.state, instance.reason ?? "");
    if (instance.state === "failed" || Date.now() > deadline) {
      throw new Error(`${instance.name} does not run`);
    }
  }
}

const instance = await start(Date.now() + 600_000);
for (const endpoint of instance.endpoints) {
  console.log(endpoint.name, endpoint.url ?? `${endpoint.hostname}:${endpoint.port}`);
}
console.log("it ends at", instance.until);
value(await api.DELETE("/v1/instances/{challenge}/{source}", one));
console.log("stopped");
