// The frame: tabs, the selection of runs (kept in the address, so that a page can be reloaded or shared), theme, messages, and the list of runs.

import * as runs from "./runs.js";
import * as learning from "./learning.js";
import * as episode from "./episode.js";
import * as agent from "./agent.js";
import * as worldModel from "./world_model.js";
import * as play from "./play.js";
import {element} from "./dom.js";

const TABS = [runs, learning, episode, agent, worldModel, play];
const POLL_MILLISECONDS = 2000;
const SERIES_COLOURS = 8;
const TOAST_MILLISECONDS = 7000;
const token = document.querySelector('meta[name="gymlab-token"]').content;

class App {
  /** Newest list of runs, as /api/runs tells it. */
  runs = [];
  /** Whether the list has been read at all. */
  loaded = false;
  selected = [];
  primary = null;
  tab = "runs";
  params = new Map();
  #listeners = {runs: new Set(), selection: new Set(), theme: new Set(), params: new Set()};

  /** Call back when the list of runs has been read (every two seconds), the selection, the theme or a parameter has changed. */
  onRuns(listener) { return this.#listen("runs", listener); }
  onSelection(listener) { return this.#listen("selection", listener); }
  onTheme(listener) { return this.#listen("theme", listener); }
  onParams(listener) { return this.#listen("params", listener); }

  #listen(kind, listener) {
    this.#listeners[kind].add(listener);
    return () => this.#listeners[kind].delete(listener);
  }

  emit(kind) {
    for (const listener of [...this.#listeners[kind]]) listener();
  }

  /** The entry of a run in the list; undefined when it is gone. */
  run(id) { return this.runs.find((run) => run.id === id); }

  /** Select runs; the primary one is what tabs for a single run show. */
  select(ids, primary) {
    this.selected = [...new Set(ids)];
    this.primary = this.selected.includes(primary) ? primary : this.selected.includes(this.primary) ? this.primary : this.selected[0] ?? null;
    this.writeAddress();
    this.emit("selection");
  }

  /** The colour of a selected run in every chart. */
  colour(id) {
    const index = this.selected.indexOf(id);
    return index < 0 ? this.css("--muted") : this.css(`--series-${(index % SERIES_COLOURS) + 1}`);
  }

  /** The value of a CSS custom property under the present theme. */
  css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

  /** A setting of a tab that is kept in the address. */
  param(name, fallback = "") { return this.params.get(name) ?? fallback; }

  setParam(name, value) {
    if (value === "" || value === null || value === undefined) this.params.delete(name);
    else this.params.set(name, String(value));
    this.writeAddress();
  }

  /** JSON of an address of the inspector; an error has the server's sentence as its message. */
  async get(path, query = {}) {
    const parts = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      for (const item of Array.isArray(value) ? value : [value]) if (item !== undefined && item !== null) parts.append(name, item);
    }
    const text = parts.toString();
    return this.#read(await fetch(text ? `${path}?${text}` : path, {cache: "no-store"}));
  }

  async post(path, body) {
    const headers = {"Content-Type": "application/json", "X-Gymlab-Token": token};
    return this.#read(await fetch(path, {method: "POST", headers, body: JSON.stringify(body)}));
  }

  async #read(response) {
    const answer = await response.json();
    if (!response.ok) throw Object.assign(new Error(answer.error ?? response.statusText), {status: response.status});
    return answer;
  }

  /** A short message at the edge of the page; kind: info, good or error. */
  toast(text, kind = "info") {
    const close = () => toast.remove();
    const toast = element("div", {class: `toast ${kind}`}, element("span", {}, text), element("button", {type: "button", class: "quiet icon", "aria-label": "Dismiss", onclick: close}, "×"));
    document.getElementById("toasts").append(toast);
    setTimeout(close, TOAST_MILLISECONDS);
  }

  show(id) {
    if (!TABS.some((tab) => tab.id === id)) id = "runs";
    const left = TABS.find((tab) => tab.id === this.tab && tab.id !== id);
    this.tab = id;
    for (const tab of TABS) {
      const button = document.getElementById(`tab-${tab.id}`);
      const panel = document.getElementById(`panel-${tab.id}`);
      const active = tab.id === id;
      button.setAttribute("aria-selected", String(active));
      button.tabIndex = active ? 0 : -1;
      panel.hidden = !active;
      if (active && !panel.dataset.mounted) {
        panel.dataset.mounted = "yes";
        tab.mount(panel, this);
      }
    }
    left?.hide?.();
    TABS.find((tab) => tab.id === id).show?.();
    this.writeAddress();
  }

  writeAddress() {
    const parts = [];
    if (this.selected.length) parts.push(["runs", this.selected.join(",")]);
    if (this.primary && this.primary !== this.selected[0]) parts.push(["primary", this.primary]);
    const query = [...parts, ...this.params].map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2F", "/").replaceAll("%2C", ",")}`).join("&");
    const hash = `#${this.tab}${query ? `?${query}` : ""}`;
    if (hash !== location.hash) history.replaceState(null, "", hash);
  }

  readAddress() {
    const [tab, query = ""] = location.hash.slice(1).split("?");
    this.params = new Map(new URLSearchParams(query));
    const wanted = (this.params.get("runs") ?? "").split(",").filter(Boolean);
    const primary = this.params.get("primary");
    this.params.delete("runs");
    this.params.delete("primary");
    this.selected = [...new Set(wanted)];
    this.primary = this.selected.includes(primary) ? primary : this.selected[0] ?? null;
    return tab || "runs";
  }
}

const app = new App();

function buildTabs() {
  const list = document.getElementById("tabs");
  const panels = document.getElementById("panels");
  for (const tab of TABS) {
    list.append(element("button", {type: "button", role: "tab", id: `tab-${tab.id}`, "aria-controls": `panel-${tab.id}`, onclick: () => app.show(tab.id)}, tab.title));
    panels.append(element("section", {role: "tabpanel", id: `panel-${tab.id}`, "aria-labelledby": `tab-${tab.id}`, class: `panel panel-${tab.id}`, hidden: true}));
  }
  list.addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const place = (TABS.findIndex((tab) => tab.id === app.tab) + step + TABS.length) % TABS.length;
    app.show(TABS[place].id);
    document.getElementById(`tab-${TABS[place].id}`).focus();
  });
}

function drawSelection() {
  const bar = document.getElementById("selection");
  const chips = app.selected.map((id) => {
    const run = app.run(id);
    const dot = element("span", {class: "dot"});
    dot.style.background = app.colour(id);
    const choose = element("button", {type: "button", class: "chip-name", "aria-pressed": String(id === app.primary), title: "Show this one in Episode and Agent", onclick: () => app.select(app.selected, id)}, dot, id);
    const drop = element("button", {type: "button", class: "chip-drop", "aria-label": `Deselect ${id}`, onclick: () => app.select(app.selected.filter((other) => other !== id))}, "×");
    return element("span", {class: `chip ${id === app.primary ? "primary" : ""} ${app.loaded && !run ? "gone" : ""}`}, choose, drop);
  });
  bar.replaceChildren(...chips);
  bar.hidden = !chips.length;
}

function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("gymlab-theme", root.dataset.theme);
  app.emit("theme");
  drawSelection();
}

let etag = null;

async function readRuns() {
  const live = document.getElementById("live");
  try {
    const answer = await app.get("/api/runs", {seen: etag});
    live.textContent = "";
    live.className = "live";
    const first = !app.loaded;
    app.loaded = true;
    if (!answer.unchanged) {
      etag = answer.version;
      app.runs = answer.runs;
      app.runsDirectory = answer.directory;
      if (first && !app.selected.length && answer.initial) app.select([answer.initial]);
      drawSelection();
    }
    app.emit("runs");
  } catch (error) {
    live.textContent = error.status ? error.message : "The inspector has stopped. Start it again: gymlab inspect";
    live.className = "live lost";
  }
}

async function poll() {
  if (!document.hidden) await readRuns();
  setTimeout(poll, POLL_MILLISECONDS);
}

buildTabs();
document.getElementById("theme").addEventListener("click", switchTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { app.emit("theme"); drawSelection(); });
window.addEventListener("hashchange", () => {
  const tab = app.readAddress();
  app.show(tab);
  app.emit("selection");
  app.emit("params");
});
app.onSelection(drawSelection);
app.show(app.readAddress());
drawSelection();
poll();
