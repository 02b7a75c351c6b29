// Episode: an agent is played, and every step can be looked at.

import {LineChart, titled} from "./charts.js";
import {compact, element, emptyState, nothingSelected, precise} from "./dom.js";
import {Player, playerKeys} from "./player.js";
import {RolloutForm, session} from "./rollout.js";
import {actionBars, actionText, StepTable} from "./steps.js";

export const id = "episode";
export const title = "Episode";

const CHART_HEIGHT = 118;
const MOST_ENTRIES = 64;
const FIGURES = [
  ["value", "Value", "What the agent expects from here on, discounted"],
  ["reward", "Reward", "Of this step, the environment's own"],
  ["cumulative_reward", "Sum", "Rewards in this episode, this step included"],
  ["mc_return", "MC return", "Discounted rewards from here to the end of the episode, as the agent was shown them"],
  ["advantage", "Advantage", "How much better it went than the value said"],
];

let view;

export function mount(root, app) {
  view = new EpisodeView(root, app);
}

export function show() { view?.show(); }

export function hide() { view?.player.pause(); }

class EpisodeView {
  constructor(root, app) {
    this.app = app;
    this.root = root;
    this.form = new RolloutForm(app, {onChange: () => this.#placeholder(), onDone: (trace, table) => this.load(trace, table), onProgress: (trace) => this.#preview(trace)});
    this.player = new Player({onMove: (position) => this.#moved(position)});
    this.table = new StepTable((row) => { this.player.pause(); this.player.go(this.trace.views.length ? this.data.frame[row] : row); });
    this.placeholder = element("div", {class: "placeholder"});
    this.facts = element("div", {class: "facts"});
    this.observation = element("div", {class: "observation"});
    this.charts = element("div", {class: "episode-charts"});
    this.lines = ["Reward", "Value and return", "Advantage"].map((name) => new LineChart(this.charts, {title: name, height: CHART_HEIGHT, xLabel: "step", onPick: (x) => this.#pick(x)}));
    this.stage = element("div", {class: "grid episode-stage"}, element("div", {class: "card"}, this.player.root), element("div", {class: "card side"}, this.facts, this.observation));
    this.rest = element("div", {class: "grid"}, element("div", {class: "card"}, this.charts), element("div", {class: "card"}, this.#tools(), this.table.root));
    this.stage.hidden = this.rest.hidden = true;
    root.append(this.form.root, this.placeholder, this.stage, this.rest);
    playerKeys(this.player, root);
    app.onTheme(() => this.trace && this.#drawCharts());
  }

  show() {
    this.form.refresh();
    // Another tab may have played since.
    if (session.trace && session.trace.id !== this.trace?.id && session.trace.run === this.app.primary) this.load(session.trace, session.table);
  }

  #tools() {
    const surprise = element("button", {type: "button", onclick: () => this.#surprise()}, "Largest surprise");
    const end = element("button", {type: "button", onclick: () => this.#nextEnd()}, "Next end");
    this.csv = element("a", {class: "button", download: "", role: "button"}, "CSV");
    this.film = element("button", {type: "button", onclick: () => this.#film()}, "mp4");
    this.surprise = surprise;
    this.note = element("span", {class: "small muted push"});
    return element("div", {class: "toolbar table-tools"}, element("h3", {}, "Steps"), surprise, end, this.note, this.csv, this.film);
  }

  #placeholder() {
    const {run, error} = this.form.picker;
    const stale = this.trace && this.trace.run !== run;
    if (this.trace && !stale) return;
    if (stale) this.#clear();
    const state = !run ? nothingSelected(this.app, "Pick one above or in Runs, then press Rollout: the agent plays, and every step can be looked at.")
      : error ? emptyState("Nothing to play", error)
      : emptyState("No episode yet", "Press Rollout: the agent plays its environment here, and every step can be looked at, exported and filmed.");
    this.placeholder.replaceChildren(state);
  }

  #clear() {
    this.player.pause();
    this.player.count = 0;
    this.trace = null;
    this.stage.hidden = this.rest.hidden = true;
  }

  #preview(trace) {
    if (trace.status !== "playing" || this.trace?.id === trace.id) return;
    this.placeholder.replaceChildren();
    if (!this.trace) this.stage.hidden = false;
    this.player.preview(trace);
  }

  load(trace, data) {
    Object.assign(this, {trace, data});
    const drawn = trace.views.length > 0;
    // A position is a frame: each step has one, and the end of an episode one more.
    const count = drawn ? Math.max(trace.frames, data.frame.at(-1) + 1) : data.total;
    this.rowAt = new Int32Array(count);
    this.isEnd = new Uint8Array(count);
    data.frame.forEach((frame, row) => {
      const place = drawn ? frame : row;
      this.rowAt[place] = row;
      if (drawn && place + 1 < count && data.frame[row + 1] !== place + 1) {
        this.rowAt[place + 1] = row;
        this.isEnd[place + 1] = 1;
      }
    });
    const starts = data.step.flatMap((step, row) => (step === 0 ? [drawn ? data.frame[row] : row] : []));
    this.placeholder.replaceChildren();
    this.stage.hidden = this.rest.hidden = false;
    this.csv.href = `/api/traces/${trace.id}/steps.csv`;
    this.film.disabled = !trace.frames;
    this.surprise.disabled = !data.advantage;
    this.note.textContent = data.advantage_kind === "gae" ? `Advantage: GAE, gamma ${compact(data.gamma)}, lambda ${compact(data.lambda)}` : data.advantage_kind ? `Advantage: return - value, gamma ${compact(data.gamma)}` : "This algorithm tells no values.";
    this.table.load(trace, data);
    this.player.load(trace, {count, starts, ends: (position) => (this.isEnd[position] ? data.end[this.rowAt[position]] : null)});
    this.#drawCharts();
    // Keys are for the frame now; space would press Rollout again.
    if (this.form.root.contains(document.activeElement)) this.player.stage.focus({preventScroll: true});
  }

  #drawCharts() {
    const {data, app} = this;
    const colour = (place) => app.css(`--series-${place}`);
    const line = (label, y, place, extra = {}) => ({id: label, label, colour: colour(place), x: data.index, y, ...extra});
    const shaped = data.shaped_reward.some((value, row) => value !== data.reward[row]);
    const charts = [
      ["Reward", [line("reward", data.reward, 1), ...(shaped ? [line("shaped", data.shaped_reward, 5, {dashed: true})] : [])]],
      ["Value and return", [line("value", data.value, 3), line("MC return", data.mc_return, 2, {dashed: true})]],
      ["Advantage", data.advantage ? [line("advantage", data.advantage, 4)] : []],
    ];
    charts.forEach(([name, series], place) => this.lines[place].update({series, title: titled(name, series), note: series.length ? "" : "This algorithm tells no values."}));
    this.#cursor();
  }

  #cursor() {
    for (const chart of this.lines) chart.setCursor(this.data.index[this.row]);
  }

  #moved(position) {
    this.row = this.rowAt[position];
    session.step = this.row;
    this.table.select(this.row);
    this.#cursor();
    this.#facts(position);
    this.#observe();
  }

  #facts(position) {
    const {data, trace, row} = this;
    const end = this.isEnd[position] ? data.end[row] : "";
    const badges = [data.greedy[row] === false ? element("span", {class: "tag off"}, "not greedy") : data.greedy[row] ? element("span", {class: "tag"}, "greedy") : null, end ? element("span", {class: "tag end"}, end) : null];
    const figures = FIGURES.map(([key, name, tip]) => element("div", {class: "figure", title: tip}, element("dt", {}, name), element("dd", {"data-figure": key}, precise(data[key]?.[row]))));
    if (data.shaped_reward[row] !== data.reward[row]) figures.splice(2, 0, element("div", {class: "figure", title: "What wrappers made of the reward"}, element("dt", {}, "Shaped reward"), element("dd", {"data-figure": "shaped_reward"}, precise(data.shaped_reward[row]))));
    const info = Object.entries(data.info).filter(([, values]) => values[row] !== null);
    const scrolled = this.facts.querySelector(".bars")?.scrollTop ?? 0;
    this.facts.replaceChildren(
      element("div", {class: "facts-head"}, element("span", {}, `Step `, element("b", {"data-figure": "index"}, String(data.index[row])), ` of ${data.total}`), element("span", {class: "muted"}, `episode ${data.episode[row]}, step ${data.step[row]}`)),
      element("div", {class: "facts-action"}, element("span", {class: "muted small"}, "Action"), element("b", {"data-figure": "action"}, actionText(trace, data, row)), ...badges.filter(Boolean)),
      actionBars(trace, data, row),
      element("dl", {class: "figures"}, figures),
      info.length ? element("details", {class: "info", open: true}, element("summary", {}, "Info after the step"), element("dl", {class: "pairs"}, info.flatMap(([key, values]) => [element("dt", {}, key), element("dd", {}, typeof values[row] === "number" ? precise(values[row]) : String(values[row]))]))) : "",
    );
    this.#scrollBars(scrolled);
  }

  /** Many actions do not fit: those in sight stay in sight, and the one taken comes into it. */
  #scrollBars(scrolled) {
    const bars = this.facts.querySelector(".bars");
    if (!bars) return;
    bars.scrollTop = scrolled;
    const chosen = bars.querySelector(".chosen");
    if (!chosen) return;
    const top = chosen.offsetTop - bars.offsetTop;
    if (top < bars.scrollTop) bars.scrollTop = top;
    else if (top + chosen.offsetHeight > bars.scrollTop + bars.clientHeight) bars.scrollTop = top + chosen.offsetHeight - bars.clientHeight;
  }

  /** The observation in numbers, where it is a vector: only the newest question is answered. */
  async #observe() {
    if (!this.trace.vectors) {
      const seen = this.trace.views.includes("processed");
      this.observation.replaceChildren(seen ? "" : element("p", {class: "small muted"}, "The observation has more numbers than can be listed here."));
      return;
    }
    if (this.asking) {
      this.askAgain = true;
      return;
    }
    this.asking = true;
    const {trace, row} = this;
    try {
      const found = await this.app.get(`/api/traces/${trace.id}/observations/${row}`);
      if (trace.id === this.trace?.id) this.#drawObservation(found);
    } catch (error) {
      this.observation.replaceChildren(element("p", {class: "small muted"}, error.message));
    }
    this.asking = false;
    if (this.askAgain) {
      this.askAgain = false;
      this.#observe();
    }
  }

  #drawObservation({observation, processed}) {
    const raw = [observation].flat(4);
    const seen = [processed].flat(4);
    const same = raw.length === seen.length && raw.every((value, place) => value === seen[place]);
    const paired = raw.length === seen.length;
    const rows = raw.slice(0, MOST_ENTRIES).map((value, place) => element("tr", {}, element("td", {}, this.trace.entry_names[place] ?? (raw.length === 1 ? "state" : `entry ${place}`)), element("td", {class: "number"}, precise(value)), paired && !same ? element("td", {class: "number"}, precise(seen[place])) : null));
    const head = paired && !same ? element("thead", {}, element("tr", {}, element("th", {}, "Observation"), element("th", {class: "number"}, "raw"), element("th", {class: "number"}, "normalised"))) : element("thead", {}, element("tr", {}, element("th", {}, "Observation"), element("th", {class: "number"}, "")));
    const more = raw.length > MOST_ENTRIES ? element("p", {class: "small muted"}, `and ${raw.length - MOST_ENTRIES} more entries`) : "";
    this.observation.replaceChildren(element("table", {class: "dense"}, head, element("tbody", {}, rows)), more);
  }

  #pick(x) {
    this.player.pause();
    const row = Math.max(0, Math.min(this.data.total - 1, Math.round(x) - this.data.index[0]));
    this.player.go(this.trace.views.length ? this.data.frame[row] : row);
  }

  #surprise() {
    const sizes = this.data.advantage.map((value) => Math.abs(value ?? 0));
    this.#pick(this.data.index[sizes.indexOf(Math.max(...sizes))]);
  }

  #nextEnd() {
    const ends = this.data.end.flatMap((end, row) => (end ? [row] : []));
    const row = ends.find((end) => end > this.row) ?? ends[0];
    if (row !== undefined) this.#pick(this.data.index[row]);
  }

  async #film() {
    this.film.disabled = true;
    this.film.textContent = "Filming…";
    try {
      const answer = await fetch(`/api/traces/${this.trace.id}/episode.mp4`);
      if (!answer.ok) throw new Error((await answer.json()).error);
      const address = URL.createObjectURL(await answer.blob());
      const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1] ?? "episode.mp4";
      element("a", {href: address, download: name}).click();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
    } catch (error) {
      this.app.toast(error.message, "error");
    }
    this.film.disabled = false;
    this.film.textContent = "mp4";
  }
}
