// Requests to the admin API, with the token that whoever looks has given.

import { changed } from "./dom.mjs";

const PAGE = "kproxy-page";
const TOKEN = "kproxy-token";
const WHO = "kproxy-who";
const ROOT = new URL("../", import.meta.url); // a reverse proxy may have put all of it below a path

export const access = { asked: false, wrong: false, mayWrite: false, again: [] };

// Refusal of a request: `code` is stable, `mistakes` are {where, message}.
export class ApiError extends Error {
  constructor(status, { code = "unreachable", message = "", mistakes = [] } = {}) {
    super(message || `kproxy answered with ${status}`);
    Object.assign(this, { status, code, mistakes });
  }
}

// Return the id of this page, which a reload keeps: rules that the page adds end with its stream.
export function pageId() {
  let id = sessionStorage.getItem(PAGE);
  if (!id) {
    id = Array.from(crypto.getRandomValues(new Uint8Array(16)), (one) => one.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem(PAGE, id);
  }
  return id;
}

// Return the name of whoever looks, for people to read: others who look, and logs, have it.
export function me() {
  return localStorage.getItem(WHO) ?? "";
}

export function nameMe(name) {
  if (name) localStorage.setItem(WHO, name);
  else localStorage.removeItem(WHO);
  changed();
}

function token() {
  return sessionStorage.getItem(TOKEN);
}

// Take a token, and do again what was refused without one.
export function giveToken(text) {
  sessionStorage.setItem(TOKEN, text.trim());
  access.asked = false;
  access.wrong = false;
  const again = access.again.splice(0);
  changed();
  for (const act of again) act();
}

// Wait for a token: the dialog is shown, and `act` called when one was given.
function askForToken(act) {
  access.wrong = token() !== null;
  access.asked = true;
  access.again.push(act);
  changed();
}

// Make a request, and return its response. Raises ApiError. `options` as for fetch; `json`: a body.
export async function request(path, { json, headers = {}, ...options } = {}) {
  const given = new Headers(headers);
  if (token() !== null) given.set("Authorization", `Bearer ${token()}`);
  const who = me();
  if (who) given.set("Kproxy-Who", encodeURIComponent(who));
  const writes = options.method === "POST" || options.method === "PUT";
  if (json !== undefined) options.body = JSON.stringify(json);
  if (writes && !given.has("Content-Type")) given.set("Content-Type", "application/json");
  let response;
  try {
    response = await fetch(new URL(path.replace(/^\//, ""), ROOT), { cache: "no-store", credentials: "omit", ...options, headers: given });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "kproxy cannot be reached" });
  }
  if (response.status === 401) {
    await new Promise(askForToken);
    return request(path, { json, headers, ...options });
  }
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new ApiError(response.status, body.error);
  }
  return response;
}

export async function get(path, options) {
  return (await request(path, options)).json();
}

// Send a change: `method` POST, PUT or DELETE, with a JSON body or none.
export async function send(method, path, json) {
  return (await request(path, { method, json })).json();
}

// Save what the API answers as a file of this name.
export async function download(path, name) {
  const blob = await (await request(path)).blob();
  saveAs(blob, name);
}

export function saveAs(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
