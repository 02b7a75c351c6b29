// Agent: its parameters, the way of an observation, where it looks, and what it has learned as a picture.

import {compact, element, emptyState, nothingSelected, precise} from "./dom.js";
import {gridMap, planeMap, tableMap} from "./maps.js";
import {CheckpointPicker, segments, session} from "./rollout.js";
import {actionText} from "./steps.js";

export const id = "agent";
export const title = "Agent";

const SALIENCY_SIZE = 336;
const PLAYED_FOR_SALIENCY = 200;
const STATISTICS_SHOWN = 64;
/** A policy that changes less than this anywhere looks at nothing: what is left is rounding. */
const LEAST_CHANGE = 1e-6;

let view;

export function mount(root, app) {
  view = new AgentView(root, app);
}

export function show() { view?.show(); }

class AgentView {
  constructor(root, app) {
    this.app = app;
    this.picker = new CheckpointPicker(app, () => this.load());
    this.facts = element("span", {class: "small muted"});
    this.placeholder = element("div", {class: "placeholder"});
    this.map = element("div", {class: "card", hidden: true});
    this.saliency = new Saliency(app);
    this.parameters = element("div", {class: "card"});
    this.way = element("div", {class: "card"});
    this.grid = element("div", {class: "grid agent-grid", hidden: true}, element("div", {}, this.map, this.saliency.root), element("div", {}, this.way, this.parameters));
    root.append(element("div", {class: "card rollout"}, ...this.picker.fields, this.facts), this.placeholder, this.grid);
    app.onTheme(() => { this.#drawMap(); this.saliency.draw(); });
    let width = 0;
    new ResizeObserver(() => {
      if (Math.abs(root.clientWidth - width) > 8) this.#drawMap();
      width = root.clientWidth;
    }).observe(root);
  }

  show() {
    this.picker.refresh();
    this.saliency.follow(this.picker);
    this.#readPath();
  }

  async load() {
    const {run, checkpoint, error} = this.picker;
    this.grid.hidden = true;
    this.facts.textContent = "";
    if (!run || !checkpoint) {
      this.placeholder.replaceChildren(!run ? nothingSelected(this.app, "Pick one above or in Runs: its parameters, what it sees and what it has learned are shown here.") : emptyState("No agent yet", error));
      return;
    }
    const key = this.key = `${run}/${checkpoint}`;
    this.placeholder.replaceChildren(element("p", {class: "muted small"}, "Loading the agent…"));
    try {
      const [agent, way] = await Promise.all([this.app.get(`/api/runs/${run}/agent`, {checkpoint}), this.app.get(`/api/runs/${run}/pipeline`, {checkpoint})]);
      if (key !== this.key) return;
      Object.assign(this, {agent, data: null});
      this.placeholder.replaceChildren();
      this.grid.hidden = false;
      this.#parameters(agent);
      this.#way(way.stages, agent.normalisation);
      this.#maps(agent);
      this.saliency.follow(this.picker, way.stages);
    } catch (failure) {
      if (key === this.key) this.placeholder.replaceChildren(emptyState("This agent cannot be shown", failure.message));
    }
  }

  #parameters({modules, algorithm, environment}) {
    const total = modules.reduce((sum, module) => sum + learned(module), 0);
    const bytes = modules.reduce((sum, module) => sum + module.bytes, 0);
    const entries = modules.reduce((sum, module) => sum + module.count, 0);
    const amount = total ? `${total.toLocaleString("en-US")} learned parameters` : `${entries.toLocaleString("en-US")} numbers in tables`;
    this.facts.textContent = `${algorithm} on ${environment} · ${amount} · ${size(bytes)}`;
    const rows = modules.flatMap((module) => moduleRows(module, 0));
    const head = element("thead", {}, element("tr", {}, element("th", {}, "Module"), element("th", {}, "Type or shape"), ...["Numbers", "Norm", "Size"].map((text) => element("th", {class: "number"}, text))));
    this.parameters.replaceChildren(element("h3", {}, "Parameters"), element("div", {class: "tree"}, element("table", {}, head, element("tbody", {}, rows))));
  }

  #way(stages, normalisation) {
    const steps = stages.map((stage) => element("li", {}, element("b", {}, stage.name), " ", element("code", {class: "small muted"}, stage.space), element("div", {class: "small muted"}, stage.about)));
    this.way.replaceChildren(element("h3", {}, "What an observation goes through"), element("ol", {class: "way"}, steps), normalisation ? statistics(normalisation) : element("p", {class: "small muted"}, "Observations are not normalised."));
  }

  #maps({maps}) {
    this.map.hidden = !maps.length;
    if (!maps.length) return;
    this.chosen = maps[0];
    this.options = {};
    this.holder = element("div", {});
    this.choices = element("div", {class: "toolbar"});
    const kinds = maps.length > 1 ? segments("Map", maps.map((map) => [map.kind, map.title]), maps[0].kind, (kind) => { this.chosen = maps.find((map) => map.kind === kind); this.#choices(); this.#readMap(); }) : element("span", {class: "muted small"}, maps[0].title);
    this.map.replaceChildren(element("div", {class: "toolbar map-tools"}, element("h3", {}, "What it has learned"), kinds, this.choices), this.holder);
    this.#choices();
    this.#readMap();
  }

  #choices() {
    const {kind, names, passengers, destinations} = this.chosen;
    this.options = {};
    this.selects = {};
    const choice = (label, name, texts, first) => {
      if (first !== undefined) this.options[name] = first;
      const select = this.selects[name] = element("select", {"aria-label": label, onchange: () => { this.options[name] = Number(select.value); this.#readMap(); }}, texts.map((text, value) => element("option", {value, selected: value === first}, text)));
      return element("label", {class: "small muted"}, label, select);
    };
    // The axes of a plane are the server's choice at first: none is chosen until it has answered.
    if (kind === "plane") {
      this.choices.replaceChildren(choice("Across", "x", names), choice("Up", "y", names));
      for (const select of Object.values(this.selects)) select.selectedIndex = -1;
    }
    else if (kind === "taxi") this.choices.replaceChildren(choice("Passenger", "passenger", passengers, 0), choice("Destination", "destination", destinations, 1));
    else this.choices.replaceChildren();
  }

  async #readMap() {
    const {run, checkpoint} = this.picker;
    const {kind} = this.chosen;
    if (this.data?.kind !== kind) this.holder.replaceChildren(element("p", {class: "muted small"}, "Asking the agent about its states…"));
    try {
      const data = await this.app.get(`/api/runs/${run}/map`, {checkpoint, kind, ...this.options});
      if (kind !== this.chosen.kind || run !== this.picker.run) return;
      this.data = data;
      if (kind === "plane") this.#axes(data);
      this.#drawMap();
      this.#readPath();
    } catch (error) {
      this.holder.replaceChildren(element("p", {class: "notice"}, error.message));
    }
  }

  #axes({x, y}) {
    for (const [name, entry] of Object.entries({x, y})) this.selects[name].value = this.options[name] = entry;
  }

  /** The way of the newest episode over a plane, when it is of this run. */
  async #readPath() {
    const {trace} = session;
    this.path = null;
    if (this.data?.kind !== "plane" || !trace?.vectors || trace.run !== this.picker.run) return;
    try {
      this.path = await this.app.get(`/api/traces/${trace.id}/path`, {x: this.data.x, y: this.data.y});
    } catch (error) {
      if (error.status !== 404) throw error;
      return; // The rollout is no longer kept.
    }
    this.#drawMap();
  }

  #drawMap() {
    if (!this.data || !this.map.clientWidth) return;
    const width = this.map.clientWidth - 30;
    const draw = {grid: gridMap, taxi: gridMap, table: tableMap, plane: planeMap}[this.data.kind];
    this.holder.replaceChildren(draw(this.data, width, this.#colours(), this.path));
  }

  #colours() {
    const css = (name) => this.app.css(name);
    return {
      text: css("--text"), muted: css("--muted"), wall: css("--text"), unseen: css("--sunken"), surface: css("--surface"), tag: css("--series-2"), tagInk: css("--surface"), font: css("--font"),
      ground: {H: "#26354a", G: "#1b7f4b", C: "#5a2b22"}, groundInk: "#ffffff",
      series: [1, 2, 3, 4, 5, 6, 7, 8].map((place) => css(`--series-${place}`)),
    };
  }
}

function learned(module) {
  return module.tensors.filter((tensor) => tensor.learned).reduce((sum, tensor) => sum + tensor.count, 0) + module.parts.reduce((sum, part) => sum + learned(part), 0);
}

function size(bytes) {
  if (bytes >= 2 ** 20) return `${(bytes / 2 ** 20).toFixed(1)} MB`;
  return bytes >= 1024 ? `${(bytes / 1024).toFixed(1)} kB` : `${bytes} B`;
}

function moduleRows(module, depth) {
  const cells = (name, what, {count, norm, bytes}, kind, hint) => {
    const first = element("td", {title: hint}, name);
    first.style.paddingLeft = `${8 + depth * 14 + (kind === "tensor" ? 14 : 0)}px`;
    return element("tr", {class: kind}, first, element("td", {}, what), element("td", {class: "number"}, count.toLocaleString("en-US")), element("td", {class: "number"}, precise(Number(norm.toPrecision(4)))), element("td", {class: "number"}, size(bytes)));
  };
  if (!module.count && !module.parts.length) return depth ? [] : [cells(module.name, module.type, module, "module", module.detail)];
  const own = module.tensors.map((tensor) => cells(tensor.name, `${tensor.shape.length ? `[${tensor.shape.join(" × ")}]` : "one number"}${tensor.learned ? "" : " buffer"}`, tensor, "tensor", ""));
  return [cells(module.name, module.type, module, "module", module.detail), ...own, ...module.parts.flatMap((part) => moduleRows(part, depth + 1))];
}

function statistics({kind, names, mean, std, count, clip}) {
  if (kind === "static") return element("p", {class: "small muted"}, "Finite bounds are mapped to [0, 1].");
  const rows = mean.slice(0, STATISTICS_SHOWN).map((value, place) => element("tr", {}, element("td", {}, names[place] ?? `entry ${place}`), element("td", {class: "number"}, precise(value)), element("td", {class: "number"}, precise(std[place]))));
  const note = `Running statistics of ${compact(count)} observations; clipped at ±${clip}.${mean.length > STATISTICS_SHOWN ? ` The first ${STATISTICS_SHOWN} entries are shown.` : ""}`;
  return element("div", {}, element("table", {class: "dense"}, element("thead", {}, element("tr", {}, element("th", {}, "Normalisation"), element("th", {class: "number"}, "mean"), element("th", {class: "number"}, "deviation"))), element("tbody", {}, rows)), element("p", {class: "small muted"}, note));
}

/** Saliency over the frame of one step of an episode. */
class Saliency {
  constructor(app) {
    this.app = app;
    this.kind = "both";
    this.canvas = element("canvas", {role: "img", "aria-label": "Saliency over the frame"});
    this.text = element("p", {class: "readout", role: "status"});
    this.slider = element("input", {type: "range", min: 0, max: 0, value: 0, "aria-label": "Step of the episode", oninput: () => this.look(Number(this.slider.value))});
    this.play = element("button", {type: "button", class: "primary", onclick: () => this.#rollout()}, "Play an episode to look at");
    this.kinds = segments("Saliency of", [["both", "Both"], ["policy", "Policy"], ["value", "Value"]], "both", (kind) => { this.kind = kind; this.draw(); });
    this.body = element("div", {hidden: true}, this.canvas, element("div", {class: "transport"}, this.slider), this.text);
    this.method = element("p", {class: "small muted"}, "Perturbation saliency (Greydanus et al. 2018): a spot of the picture is blurred; the more the answer of the agent changes, the more the spot matters. Blue: action probabilities, red: value.");
    this.root = element("div", {class: "card saliency", hidden: true}, element("div", {class: "toolbar map-tools"}, element("h3", {}, "Where it looks"), this.kinds), this.play, this.body, this.method);
  }

  /** Show the newest episode of this checkpoint, if the agent sees images. */
  follow(picker, stages) {
    this.picker = picker;
    if (stages) this.root.hidden = !/uint8 \[\d+, \d+, \d+\]/.test(stages.at(-1).space);
    const {trace} = session;
    const fits = trace && trace.run === picker.run && trace.checkpoint === picker.checkpoint && trace.views.includes("processed");
    this.body.hidden = !fits;
    this.play.hidden = Boolean(fits);
    if (!fits || this.root.hidden) return;
    this.slider.max = session.table.total - 1;
    this.look(session.step);
  }

  async #rollout() {
    this.play.disabled = true;
    try {
      let trace = await this.app.post("/api/traces", {run: this.picker.run, checkpoint: this.picker.checkpoint, deterministic: false, seed: 0, steps: PLAYED_FOR_SALIENCY});
      while (trace.status === "waiting" || trace.status === "playing") {
        this.play.textContent = `Playing, ${trace.played} of ${trace.steps} steps`;
        await new Promise((resolve) => setTimeout(resolve, 150));
        trace = await this.app.get(`/api/traces/${trace.id}`);
      }
      if (trace.status === "failed") throw new Error(trace.error);
      Object.assign(session, {trace, table: await this.app.get(`/api/traces/${trace.id}/steps`), step: 0});
      this.follow(this.picker);
    } catch (error) {
      this.app.toast(error.message, "error");
    }
    this.play.disabled = false;
    this.play.textContent = "Play an episode to look at";
  }

  /** Ask for the maps of a step; only the newest question is answered. */
  async look(step) {
    this.wanted = step;
    this.slider.value = step;
    if (this.asking) return;
    this.asking = true;
    try {
      while (this.shown !== `${session.trace.id}/${this.wanted}`) {
        const {trace, table} = session;
        const now = this.wanted;
        const [maps, image] = await Promise.all([this.app.get(`/api/traces/${trace.id}/saliency/${now}`), picture(`/api/traces/${trace.id}/frames/${table.frame[now]}?view=processed`)]);
        Object.assign(this, {maps, image, shown: `${trace.id}/${now}`, step: now});
        this.draw();
      }
    } catch (error) {
      this.text.textContent = error.message;
    }
    this.asking = false;
  }

  draw() {
    if (!this.maps) return;
    const {maps, image, canvas, step} = this;
    const factor = Math.max(1, SALIENCY_SIZE / image.naturalHeight);
    canvas.width = Math.round(image.naturalWidth * factor);
    canvas.height = Math.round(image.naturalHeight * factor);
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const heat = new ImageData(maps.columns, maps.rows);
    const blind = maps.most.policy < LEAST_CHANGE;
    const shown = {policy: this.kind !== "value" && !blind, value: this.kind !== "policy"};
    for (let place = 0; place < maps.rows * maps.columns; place += 1) {
      const [policy, value] = ["policy", "value"].map((name) => (shown[name] ? maps[name].flat()[place] / (maps.most[name] || 1) : 0));
      heat.data.set([255 * (value / (policy + value || 1)), 60, 255 * (policy / (policy + value || 1)), 190 * Math.max(policy, value)], place * 4);
    }
    const small = element("canvas");
    small.width = maps.columns;
    small.height = maps.rows;
    small.getContext("2d").putImageData(heat, 0, 0);
    context.imageSmoothingEnabled = true;
    context.drawImage(small, 0, 0, canvas.width, canvas.height);
    const {trace, table} = session;
    this.text.textContent = `Step ${step}: ${actionText(trace, table, step)}, value ${precise(table.value[step])} · largest change of the policy ${precise(maps.most.policy)}${blind ? " (too small to be drawn)" : ""}, of the value ${precise(maps.most.value)}`;
  }
}

async function picture(address) {
  const image = new Image();
  image.src = address;
  await image.decode();
  return image;
}
