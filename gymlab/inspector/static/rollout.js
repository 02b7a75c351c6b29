// The form that plays an agent: run, checkpoint, way of acting, seed, steps; used by the tabs that show an episode.
//
//   const form = new RolloutForm(app, {steps: 500, action: "Rollout", onDone: (trace, table) => ..., onProgress: (trace) => ...});
//   root.append(form.root);

import {compact, element} from "./dom.js";

const POLL_MILLISECONDS = 120;
const RELOAD_MILLISECONDS = 10000;

/** The newest finished rollout, so that another tab can look at the same episode: {trace, table, step}. */
export const session = {trace: null, table: null, step: 0};

/** Run and checkpoint of the primary run; `onChange(run, checkpoint)` when either is another one. */
export class CheckpointPicker {
  constructor(app, onChange) {
    this.app = app;
    this.onChange = onChange;
    this.runs = element("select", {"aria-label": "Run", onchange: () => app.select([...new Set([...app.selected, this.runs.value])], this.runs.value)});
    this.checkpoints = element("select", {"aria-label": "Checkpoint", onchange: () => this.#announce()});
    this.fields = [element("label", {}, "Run", this.runs), element("label", {}, "Checkpoint", this.checkpoints)];
    this.error = "";
    app.onSelection(() => this.refresh());
    app.onRuns(() => {
      this.#fillRuns();
      const none = !app.runs.length;
      if (!this.run && none !== this.none) this.#announce();
      this.none = none;
    });
    // A run that trains writes new ones.
    setInterval(() => { if (this.run && app.run(this.run)?.status === "running" && this.runs.offsetParent) this.refresh(); }, RELOAD_MILLISECONDS);
  }

  get run() { return this.app.primary; }

  get checkpoint() { return this.checkpoints.value; }

  #fillRuns() {
    const ids = this.app.runs.filter((run) => !["damaged", "incomplete"].includes(run.status)).map((run) => run.id);
    if (this.run && !ids.includes(this.run)) ids.unshift(this.run);
    const key = JSON.stringify([ids, this.run]);
    if (key === this.key) return;
    this.key = key;
    this.runs.replaceChildren(...(this.run ? [] : [element("option", {value: ""}, "choose a run")]), ...ids.map((id) => element("option", {value: id, selected: id === this.run}, id)));
    this.runs.value = this.run ?? "";
  }

  /** Read the checkpoints of the primary run. */
  async refresh() {
    this.#fillRuns();
    const run = this.run;
    const before = run === this.shownRun ? this.checkpoints.value : "";
    let found = [];
    this.error = "";
    try {
      if (run) found = (await this.app.get(`/api/runs/${run}/checkpoints`)).checkpoints;
      if (run && !found.length) this.error = "This run has no finished checkpoint yet. The first one is written at its first evaluation, or after five minutes.";
    } catch (error) {
      this.error = error.message;
    }
    if (run !== this.run) return;
    this.shownRun = run;
    this.checkpoints.replaceChildren(...found.map((entry) => element("option", {value: entry.name}, checkpointTitle(entry))));
    const chosen = found.find((entry) => entry.name === before) ?? found.find((entry) => entry.best) ?? found[0];
    this.checkpoints.value = chosen?.name ?? "";
    this.checkpoints.disabled = !found.length;
    this.#titles();
    if (this.announced !== `${run}/${this.checkpoint}` || this.error) this.#announce();
  }

  /** What a closed list has no room for. */
  #titles() {
    for (const list of [this.runs, this.checkpoints]) list.title = list.selectedOptions[0]?.textContent ?? "";
  }

  #announce() {
    this.#titles();
    this.announced = `${this.run}/${this.checkpoint}`;
    this.onChange(this.run, this.checkpoint);
  }
}

function checkpointTitle({name, env_steps, best, last, return: score}) {
  const words = [best ? "best" : "", last ? "last" : ""].filter(Boolean).join(", ");
  const at = env_steps === null ? "" : ` · ${compact(env_steps)} steps`;
  return `${name}${words ? ` (${words})` : ""}${at}${score === null || score === undefined ? "" : ` · return ${compact(score)}`}`;
}

/** Two or more buttons of which one is pressed; `onPick(value)`. */
export function segments(label, choices, chosen, onPick) {
  const group = element("div", {class: "segments", role: "group", "aria-label": label});
  const press = (value) => { for (const button of group.children) button.setAttribute("aria-pressed", String(button.dataset.value === String(value))); };
  for (const [value, text] of choices) group.append(element("button", {type: "button", "data-value": value, onclick: () => { press(value); onPick(value); }}, text));
  press(chosen);
  group.press = press;
  return group;
}

export class RolloutForm {
  constructor(app, {steps = 500, action = "Rollout", onChange = () => {}, onDone, onProgress = () => {}, extra = []}) {
    this.app = app;
    this.onDone = onDone;
    this.onProgress = onProgress;
    this.action = action;
    this.picker = new CheckpointPicker(app, (run, checkpoint) => { this.#state(); onChange(run, checkpoint); });
    this.mode = app.param("mode", "deterministic");
    const modes = segments("Actions", [["deterministic", "Deterministic"], ["stochastic", "Stochastic"]], this.mode, (mode) => { this.mode = mode; app.setParam("mode", mode === "deterministic" ? "" : mode); });
    this.seed = element("input", {type: "number", min: 0, max: 2147483647, step: 1, value: app.param("seed", "0"), class: "short", "aria-label": "Seed", onchange: () => app.setParam("seed", this.seed.value === "0" ? "" : this.seed.value)});
    this.steps = element("input", {type: "number", min: 1, max: 20000, step: 1, value: app.param("steps", String(steps)), class: "short", "aria-label": "Steps", onchange: () => app.setParam("steps", this.steps.value === String(steps) ? "" : this.steps.value)});
    this.button = element("button", {type: "submit", class: "primary"}, action);
    this.bar = element("progress", {max: 1, value: 0, "aria-label": "Progress", hidden: true});
    this.message = element("span", {class: "small muted", role: "status"});
    this.root = element("form", {class: "card rollout", novalidate: true, onsubmit: (event) => { event.preventDefault(); this.#submit(); }},
      ...this.picker.fields, modes, element("label", {}, "Seed", this.seed), element("label", {}, "Steps", this.steps), ...extra, this.button, this.bar, this.message);
  }

  /** Read what there is to choose from. */
  refresh() { return this.picker.refresh(); }

  #state(text) {
    this.button.disabled = !this.playing && (!this.picker.run || !this.picker.checkpoint);
    this.button.textContent = this.playing ? "Stop" : this.action;
    this.button.classList.toggle("primary", !this.playing);
    this.bar.hidden = !this.playing;
    if (text !== undefined) this.message.textContent = text;
  }

  async #submit() {
    if (this.playing) {
      await this.app.post(`/api/traces/${this.playing}/cancel`, {}).catch((error) => this.app.toast(error.message, "error"));
      return;
    }
    const [seed, steps] = [this.seed, this.steps].map((input) => Number(input.value));
    const wish = {run: this.picker.run, checkpoint: this.picker.checkpoint, deterministic: this.mode === "deterministic", seed, steps};
    try {
      let trace = await this.app.post("/api/traces", wish);
      this.playing = trace.id;
      this.bar.removeAttribute("value");
      this.#state("");
      while (trace.status === "waiting" || trace.status === "playing") {
        await new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS));
        trace = await this.app.get(`/api/traces/${trace.id}`);
        if (trace.played) this.bar.value = trace.played / trace.steps;
        this.#state(trace.status === "waiting" ? "waiting" : `${trace.played.toLocaleString("en-US")} / ${trace.steps.toLocaleString("en-US")}`);
        this.onProgress(trace);
      }
      await this.#ended(trace);
    } catch (error) {
      this.playing = null;
      this.#state("");
      this.app.toast(error.message, "error");
    }
  }

  async #ended(trace) {
    if (trace.status === "done") {
      const table = await this.app.get(`/api/traces/${trace.id}/steps`);
      Object.assign(session, {trace, table, step: 0});
      this.playing = null;
      this.#state(trace.note || `${trace.played.toLocaleString("en-US")} steps, ${trace.seconds.toFixed(1)} s`);
      this.onDone(trace, table);
      return;
    }
    this.playing = null;
    this.#state(trace.status === "cancelled" ? "Stopped." : "");
    if (trace.status === "failed") this.app.toast(trace.error, "error");
  }
}
