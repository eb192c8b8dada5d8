"use strict";

const find = (id) => document.getElementById(id);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// A key belongs to one intended order. The page creates it before the first attempt, and it survives a reload and
// back navigation. The newest key comes first.
const KEYS_SHOWN = 8;
let keys = JSON.parse(sessionStorage.getItem("keys") ?? "[]");

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  keys.unshift(Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(""));
  keys.length = Math.min(keys.length, KEYS_SHOWN);
  sessionStorage.setItem("keys", JSON.stringify(keys));
  showKey();
}

function showKey() {
  find("key").textContent = keys[0];
  count();
}

// The form fields survive as well, because the server rejects the same key with another order.
const FIELDS = ["sku", "qty", "delay", "fail"];

function keepFields() {
  sessionStorage.setItem("fields", JSON.stringify(FIELDS.map((id) => find(id).value)));
}

function restoreFields() {
  const kept = JSON.parse(sessionStorage.getItem("fields") ?? "null");
  kept?.forEach((value, at) => { find(FIELDS[at]).value = value; });
}

// Sending. The page deliberately does not prevent a repeated submit.
function order() {
  const order = { sku: find("sku").value, qty: find("qty").valueAsNumber, delay_ms: find("delay").valueAsNumber };
  if (find("fail").value) order.fail = find("fail").value;
  return JSON.stringify(order);
}

async function send() {
  const [key, body] = [keys[0], order()];
  const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
  for (let tries = 1; tries <= 20; tries++) {
    let response;
    try {
      response = await fetch("/orders", { method: "POST", headers, body });
    } catch {
      tell(key, "refused", "no answer: whether it was placed is unknown, so send it again with the same key");
      break;
    }
    await told(key, response);
    const after = Number(response.headers.get("Retry-After"));
    if (response.status !== 409 || !after || !find("retry").checked) break;
    await pause(after * 1000);
  }
}

async function told(key, response) {
  const answer = await response.json().catch(() => ({}));
  const replayed = response.headers.get("Idempotent-Replayed") === "true";
  if (response.ok) {
    const what = replayed ? "replayed: this order was placed before" : "placed";
    tell(key, replayed ? "replayed" : "ran", `${response.status} ${what}, order ${answer.order_id.slice(0, 8)}`);
  } else if (response.status === 409) {
    const after = response.headers.get("Retry-After");
    tell(key, "conflict", `409 ${answer.title}${after ? `: come back in ${after} s` : ""}`);
  } else {
    tell(key, "refused", `${response.status} ${answer.title ?? answer.error ?? "failed"}: ${answer.detail ?? "the key is free again"}`);
  }
  count();
}

function tell(key, kind, text) {
  const line = document.createElement("li");
  line.className = kind;
  line.textContent = `${key.slice(0, 8)} – ${text}`;
  find("answers").prepend(line);
}

// Counters: from the server, not from the responses on this page.
const COUNTED = ["executions", "replays", "conflicts", "mismatches"];

async function count() {
  const rows = await Promise.all(keys.map(async (key) => {
    const response = await fetch("/numbers", { headers: { "Idempotency-Key": key } });
    const numbers = await response.json();
    return [key, ...COUNTED.map((name) => numbers[name])];
  })).catch(() => []);
  if (rows.length) find("numbers").tBodies[0].replaceChildren(...rows.map(row));
}

function row([key, ...numbers]) {
  const line = document.createElement("tr");
  line.dataset.key = key;
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = key.slice(0, 8);
  line.append(head, ...numbers.map((number, at) => {
    const cell = document.createElement("td");
    cell.dataset.count = COUNTED[at];
    cell.textContent = number;
    return cell;
  }));
  return line;
}

// Tabs are links, so back navigation and the arrow keys work. No element has the id of a link target, so the browser
// neither scrolls nor moves the focus.
const TABS = [find("tab-try"), find("tab-code")];

function showTab() {
  const shown = TABS.find((tab) => tab.hash === location.hash) ?? TABS[0];
  for (const tab of TABS) {
    tab.setAttribute("aria-selected", tab === shown);
    tab.tabIndex = tab === shown ? 0 : -1;
    find(tab.getAttribute("aria-controls")).hidden = tab !== shown;
  }
}

document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const at = TABS.indexOf(event.target);
  if (!step || at < 0) return;
  const next = TABS[(at + step + TABS.length) % TABS.length];
  next.focus();
  next.click();
});

addEventListener("hashchange", showTab);
find("form").addEventListener("input", keepFields);
find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
find("many").addEventListener("click", () => {
  if (find("form").reportValidity()) for (let sent = 0; sent < 5; sent++) send();
});
find("fresh").addEventListener("click", newKey);

restoreFields();
showTab();
if (keys.length) showKey(); else newKey();
setInterval(() => { if (!document.hidden) count(); }, 1000);
fetch("/code").then((response) => response.text()).then((code) => { find("source").textContent = code; });
