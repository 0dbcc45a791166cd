// Signing in at an OpenID issuer: the page goes there and comes back with a code, which the API gives the issuer for a token.
import { call, token } from "/assets/api.js";

const ASKED = "noontide.asked"; // what was asked of the issuer, until the page is back
const REFRESH = "noontide.refresh";
const AHEAD = 0.8; // the next token is asked for when this part of the time has passed
const SHORTEST_MS = 5000;

const here = () => `${location.origin}/`;
const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const unguessable = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

export const issuer = () => call("GET", "/v1/login");

export async function leave({ authorize, client_id, scope }) {
  const asked = { state: unguessable(), verifier: unguessable(), hash: location.hash };
  sessionStorage.setItem(ASKED, JSON.stringify(asked));
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(asked.verifier));
  const to = new URL(authorize);
  const said = {
    response_type: "code", client_id, scope, redirect_uri: here(), state: asked.state,
    code_challenge: base64url(new Uint8Array(digest)), code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(said)) to.searchParams.set(name, value);
  location.assign(to);
}

// Back from the issuer? Then take what it gave. Throws a Problem when it is not what was asked for.
export async function arrive() {
  const given = new URLSearchParams(location.search);
  const asked = JSON.parse(sessionStorage.getItem(ASKED) || "null");
  if (!given.has("state") || !(given.has("code") || given.has("error"))) return;
  sessionStorage.removeItem(ASKED);
  history.replaceState(null, "", `/${asked?.hash || ""}`);
  if (!asked || given.get("state") !== asked.state) throw new Error("the issuer answers something that this tab did not ask");
  if (!given.has("code")) throw new Error(`the issuer refuses: ${given.get("error_description") || given.get("error")}`);
  keep(await call("POST", "/v1/login", { body: { code: given.get("code"), verifier: asked.verifier, redirect: here() } }));
}

function keep(granted) {
  token.set(granted.token);
  if (!granted.refresh_token || !granted.expires_sec) return;
  sessionStorage.setItem(REFRESH, granted.refresh_token);
  setTimeout(renew, Math.max(SHORTEST_MS, granted.expires_sec * 1000 * AHEAD));
}

// The next token; false when there is none to be had: then somebody has to sign in again. One question for all who ask.
let renewing = null;

export function renew() {
  renewing ||= next().finally(() => { renewing = null; });
  return renewing;
}

async function next() {
  const refresh = sessionStorage.getItem(REFRESH);
  if (!refresh) return false;
  try {
    keep(await call("POST", "/v1/login", { body: { refresh_token: refresh } }));
    return true;
  } catch (error) {
    if (error.status === 401) sessionStorage.removeItem(REFRESH);
    return false;
  }
}
