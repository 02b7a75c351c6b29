// World model: truth, reconstruction and open-loop dreams side by side, with the error over the horizon; and what a population evolved in or beside it returns.

import {LineChart, titled} from "./charts.js";
import {element, emptyState, nothingSelected, precise} from "./dom.js";
import {PlansView} from "./plans.js";
import {RolloutForm} from "./rollout.js";

export const id = "world_model";
export const title = "World model";

const LABELS = {truth: "Truth", reconstruction: "Reconstruction", dream: "Dream"};
const STRIP_HEIGHT = 56;
const DEFAULT_HORIZON = 30;
const SERIES = {truth: 8, reconstruction: 3, dream: 2};
const OTHER_SERIES = [4, 5, 6, 7, 1];
const RETURNS = [["elite", "elite, judged again", 2], ["best", "best of the population", 3], ["mean", "mean of the population", 8]];
const NO_DREAM = ["No dream yet", "Press Dream: the agent plays, and from the start step on its world model goes on by itself with the same actions."];
const NO_PLANS = ["No plans yet", "Press Dream: the agent plays, and what it considered at the start step is shown, with how far its model follows the world from there."];

let view;

export function mount(root, app) {
  view = new WorldModelView(root, app);
}

export function show() { view?.form.refresh(); }

class WorldModelView {
  constructor(root, app) {
    this.app = app;
    const number = (label, value, low, high) => element("input", {type: "number", min: low, max: high, step: 1, value, class: "short", "aria-label": label});
    this.start = number("Start", 10, 0, 19999);
    this.horizon = number("Horizon", DEFAULT_HORIZON, 1, 200);
    for (const input of [this.start, this.horizon]) input.addEventListener("change", () => this.trace && this.dream());
    this.form = new RolloutForm(app, {steps: 200, action: "Dream", extra: [element("label", {}, "Start", this.start), element("label", {}, "Horizon", this.horizon)], onChange: (run) => this.#judge(run), onDone: (trace) => { this.trace = trace; this.dream(); }});
    this.form.root.hidden = true;
    this.placeholder = element("div", {class: "placeholder"});
    this.slider = element("input", {type: "range", min: 0, max: 0, value: 0, "aria-label": "Step of the dream", oninput: () => this.#go(Number(this.slider.value))});
    this.readout = element("p", {class: "readout", role: "status"});
    this.pictures = element("div", {class: "dream"});
    this.strip = element("div", {class: "strip"});
    this.errors = element("div", {});
    this.chart = new LineChart(this.errors, {title: "Error over the horizon", height: 190, xLabel: "steps ahead", onPick: (x) => this.#go(Math.round(x) - 1)});
    this.entries = element("div", {});
    this.body = element("div", {class: "grid", hidden: true},
      element("div", {class: "card"}, this.pictures, this.entries, element("div", {class: "transport"}, this.slider), this.readout, this.strip), element("div", {class: "card"}, this.errors));
    this.returns = element("div", {class: "card", hidden: true});
    this.generations = new LineChart(this.returns, {title: "Returns by generation", height: 190, xLabel: "generation"});
    this.plans = new PlansView(app);
    root.append(this.form.root, this.placeholder, this.body, this.plans.root, this.returns);
    app.onTheme(() => this.found && this.#draw());
  }

  /** Whether the run has a world model at all; if not, the page says what to train. */
  async #judge(run) {
    if (this.trace?.run !== run) {
      this.trace = this.found = null;
      this.body.hidden = true;
      this.plans.hide();
    }
    this.#population(run);
    if (!run) {
      this.form.root.hidden = false;
      this.placeholder.replaceChildren(nothingSelected(this.app, "Pick one above or in Runs. A run whose algorithm has learned a model of its world shows its dreams here."));
      return;
    }
    try {
      const {algorithm, dreams, plans, able: others, experiment} = await this.app.get(`/api/runs/${run}/world_model`);
      if (run !== this.app.primary) return;
      const able = dreams || plans;
      this.ways = {dreams, plans};
      this.form.root.hidden = !able;
      const {error} = this.form.picker;
      if (!able) this.placeholder.replaceChildren(without(algorithm, others, experiment));
      else if (error) this.placeholder.replaceChildren(emptyState("Nothing to dream with", error));
      else this.placeholder.replaceChildren(this.trace ? "" : emptyState(...(dreams ? NO_DREAM : NO_PLANS)));
    } catch (error) {
      this.placeholder.replaceChildren(emptyState("This run cannot be read", error.message));
    }
  }

  /** Returns of the generations, for runs that evolve their controller. */
  async #population(run) {
    this.returns.hidden = true;
    if (!run) return;
    const name = (kind) => `train/controller/return/${kind}`;
    const {series} = await this.app.get(`/api/runs/${run}/curves`, {metric: RETURNS.map(([kind]) => name(kind)), axis: "generation"});
    if (run !== this.app.primary) return;
    const lines = RETURNS.filter(([kind]) => series[name(kind)]?.x.length).map(([kind, label, place]) => ({id: kind, label, colour: this.app.css(`--series-${place}`), ...series[name(kind)]}));
    this.returns.hidden = lines.length === 0;
    this.generations.update({title: titled("Returns by generation", lines), series: lines});
  }

  async dream() {
    const {trace} = this;
    const query = {start: Math.min(Number(this.start.value), trace.played - 1), horizon: this.horizon.value};
    try {
      if (this.ways.plans) await this.plans.show(trace, query);
      if (trace !== this.trace) return;
      this.placeholder.replaceChildren();
      if (!this.ways.dreams) return;
      const found = await this.app.get(`/api/traces/${trace.id}/dream`, query);
      const sheet = found.width ? await picture(`/api/traces/${trace.id}/dream.png?start=${found.start}&horizon=${found.horizon}`) : null;
      if (trace !== this.trace) return;
      Object.assign(this, {found, sheet, step: 0, entry: 0});
      this.placeholder.replaceChildren();
      this.body.hidden = false;
      this.slider.max = found.horizon - 1;
      this.#draw();
    } catch (error) {
      this.app.toast(error.message, "error");
    }
  }

  #draw() {
    const {found} = this;
    const x = Array.from({length: found.horizon}, (_, row) => row + 1);
    const line = (kind, label, y) => ({id: kind, label, colour: this.#colour(kind), x, y});
    const unit = found.width ? "RMS, share of the full range" : "RMS, in the units of the observation";
    const errors = [line("reconstruction", "reconstruction", found.reconstruction_error), line("dream", "dream", found.dream_error)];
    this.chart.update({title: titled(`Error over the horizon (${unit})`, errors), series: errors});
    this.pictures.replaceChildren();
    this.entries.replaceChildren();
    this.strip.replaceChildren();
    if (this.sheet) this.#film();
    else this.#vectors(x, line);
    this.#go(this.step);
  }

  #colour(kind) {
    const place = this.found.kinds.indexOf(kind) - Object.keys(LABELS).length;
    return this.app.css(`--series-${SERIES[kind] ?? OTHER_SERIES[place % OTHER_SERIES.length]}`);
  }

  #film() {
    const {width, height} = this.found;
    this.canvases = this.found.kinds.map((kind) => {
      const label = LABELS[kind] ?? kind;
      const canvas = element("canvas", {role: "img", "aria-label": label, "data-kind": kind});
      canvas.width = width;
      canvas.height = height;
      this.pictures.append(element("figure", {}, element("figcaption", {}, label), canvas));
      return canvas;
    });
    const whole = element("canvas", {role: "img", "aria-label": "All steps: truth, reconstruction and dreams, one below the other"});
    whole.width = this.sheet.naturalWidth;
    whole.height = this.sheet.naturalHeight;
    const factor = STRIP_HEIGHT / height;
    whole.style.width = `${whole.width * factor}px`;
    whole.style.height = `${whole.height * factor}px`;
    whole.getContext("2d").drawImage(this.sheet, 0, 0);
    whole.addEventListener("click", (event) => this.#go(Math.floor(event.offsetX / (width * factor))));
    this.strip.append(whole);
  }

  #vectors(x, line) {
    const names = this.found.truth[0].map((_, place) => this.trace.entry_names[place] ?? `entry ${place}`);
    const select = element("select", {"aria-label": "Entry", onchange: () => { this.entry = Number(select.value); draw(); }}, names.map((name, value) => element("option", {value, selected: value === this.entry}, name)));
    this.canvases = [];
    this.entries.append(element("div", {class: "toolbar"}, element("label", {class: "small muted"}, "Entry of the observation", select), this.found.kinds.map((kind) => {
      const patch = element("i");
      patch.style.background = this.#colour(kind);
      return element("span", {class: "swatch small"}, patch, LABELS[kind] ?? kind);
    })));
    const holder = element("div", {class: "dream-entry"});
    this.entries.append(holder);
    this.lines = new LineChart(holder, {height: 220, xLabel: "steps ahead", onPick: (at) => this.#go(Math.round(at) - 1)});
    const draw = () => this.lines.update({series: this.found.kinds.map((kind) => line(kind, LABELS[kind] ?? kind, this.found[kind].map((row) => row[this.entry])))});
    draw();
  }

  #go(step) {
    const {found, sheet} = this;
    this.step = Math.max(0, Math.min(found.horizon - 1, step));
    this.slider.value = this.step;
    this.chart.setCursor(this.step + 1);
    if (sheet) this.canvases.forEach((canvas, row) => canvas.getContext("2d").drawImage(sheet, this.step * found.width, row * found.height, found.width, found.height, 0, 0, found.width, found.height));
    else this.lines.setCursor(this.step + 1);
    const ended = found.horizon < Number(this.horizon.value) ? ` · the episode ends ${found.horizon} steps ahead` : "";
    this.readout.textContent = `${this.step + 1} ${this.step ? "steps" : "step"} after step ${found.start}, the last one seen · error of the reconstruction ${precise(found.reconstruction_error[this.step])}, of the dream ${precise(found.dream_error[this.step])}${ended}`;
  }
}

function without(algorithm, others, experiment) {
  const text = others.length
    ? `${algorithm} learns what to do and keeps no model of its world. Train an algorithm that does: ${others.join(", ")}.`
    : `${algorithm} learns what to do and keeps no model of its world. An algorithm whose workflow offers imagine fills this tab: docs/how-to/add-an-algorithm.md says how to add one.`;
  return emptyState("No world model", text, experiment ? `gymlab train ${experiment}` : null);
}

async function picture(address) {
  const image = new Image();
  image.src = address;
  await image.decode();
  return image;
}
