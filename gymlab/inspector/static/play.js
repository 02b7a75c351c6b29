// Play: the agent or you, in the real environment, in the dream of its world model, or in both side by side; and episodes that the run has saved.

import {compact, element, emptyState, nothingSelected} from "./dom.js";
import {GameKeys} from "./play_keys.js";
import {PlayStage} from "./play_stage.js";
import {CheckpointPicker, segments} from "./rollout.js";

export const id = "play";
export const title = "Play";

const WHERE = [["real", "Environment"], ["dream", "Dream"], ["beside", "Side by side"], ["saved", "Saved"]];
const RATES = [1, 2, 5, 10, 15, 30, 60];
const YOUR_RATE = 10;
const MOST_RATE = 30;
const HOLD_MILLISECONDS = 260;
const NO_GAME = {
  real: ["The environment as it is", "Press Start: the agent plays it, or you do, with the keyboard or the buttons on the page."],
  dream: ["A dream of the environment", "Press Start: from a real first observation on, everything is made up by the world model that the agent has learned."],
  beside: ["Dream beside reality", "Press Start: both begin alike and take the same actions. Where and when they drift apart is what the model has not learned."],
  saved: ["What the run has saved", "Press Start to browse its episodes, train and test, step by step."],
};

let view;

export function mount(root, app) {
  view = new PlayView(root, app);
}

export function show() { view?.picker.refresh(); }

export function hide() { view?.pause(); }

class PlayView {
  constructor(root, app) {
    this.app = app;
    this.root = root;
    this.where = app.param("where", "dream");
    this.by = app.param("by", "you");
    this.playing = false;
    this.picker = new CheckpointPicker(app, (run) => this.#judge(run));
    this.#build();
    root.append(this.form, this.placeholder, this.table, this.stage.charts);
    this.#controls();
    window.addEventListener("pagehide", () => this.#leave());
  }

  #build() {
    const {app} = this;
    const choose = (name) => (value) => { this[name] = value; app.setParam(name, value); this.#controls(); this.#close(); };
    this.places = segments("Where", WHERE, this.where, choose("where"));
    this.players = segments("Who plays", [["agent", "Agent"], ["you", "You"]], this.by, choose("by"));
    this.deterministic = element("input", {type: "checkbox", checked: true});
    this.likeliest = element("input", {type: "checkbox"});
    this.choosing = element("label", {title: "The agent takes its likeliest action, instead of drawing one"}, this.deterministic, "greedy");
    this.dreaming = element("label", {title: "The dream takes what is likeliest at each step, instead of drawing it"}, this.likeliest, "likeliest dream");
    this.seed = element("input", {type: "number", min: 0, max: 2147483647, step: 1, value: app.param("seed", "0"), class: "short", "aria-label": "Seed"});
    this.seeding = element("label", {}, "Seed", this.seed);
    this.button = element("button", {type: "submit", class: "primary"}, "Start");
    this.message = element("span", {class: "small muted", role: "status"});
    this.form = element("form", {class: "card rollout play-form", novalidate: true, onsubmit: (event) => { event.preventDefault(); this.start(); }}, ...this.picker.fields, this.places, this.players, this.seeding, this.choosing, this.dreaming, this.button, this.message);
    this.placeholder = element("div", {class: "placeholder"});
    this.stage = new PlayStage(app);
    this.keys = new GameKeys(this.root, {onPress: (when) => this.#pressed(when)});
    const button = (label, action, text) => element("button", {type: "button", "aria-label": label, title: label, onclick: action}, text);
    this.playButton = button("Play or pause", () => this.toggle(), "▶ Play");
    this.stepButton = button("One step", () => { this.pause(); this.#step([]); }, "Step");
    this.backButton = button("One step back", () => { this.pause(); this.#go({step: Math.max(0, this.state.step - 1)}); }, "Back");
    this.nextButton = button("Begin the next episode", () => this.begin(), "New episode");
    this.slider = element("input", {type: "range", min: 0, max: 0, value: 0, "aria-label": "Step of the episode", oninput: () => { this.pause(); this.#go({step: Number(this.slider.value)}); }});
    this.rate = element("select", {"aria-label": "Steps a second"}, RATES.map((rate) => element("option", {value: rate}, `${rate} steps/s`)));
    this.pace = segments("When steps are taken", [["turns", "Each key is a step"], ["runs", "Time runs"]], "turns", (pace) => { this.pacing = pace; this.pause(); });
    this.pacing = "turns";
    this.hint = element("p", {class: "small muted play-hint"});
    this.speed = element("p", {class: "small muted", "data-figure": "latency"});
    this.list = element("div", {class: "play-list"});
    this.transport = element("div", {class: "transport play-transport"}, this.playButton, this.backButton, this.stepButton, this.slider, this.nextButton, this.pace, this.rate);
    this.table = element("div", {class: "grid play-table", hidden: true},
      element("div", {class: "card play-main"}, this.stage.screen, this.transport, this.keys.root, this.hint),
      element("div", {class: "card side"}, this.stage.facts, this.speed, this.list));
    this.table.hidden = this.stage.charts.hidden = true;
  }

  /** What the form offers for the place that is chosen. */
  #controls() {
    this.players.hidden = this.seeding.hidden = this.where === "saved";
    this.choosing.hidden = this.where === "saved" || this.by !== "agent";
    this.dreaming.hidden = this.where === "saved" || this.where === "real";
    this.button.disabled = !this.picker.run || !this.picker.checkpoint || this.#barred();
  }

  /** Whether a world model is wanted that the run does not have. */
  #barred() { return ["dream", "beside"].includes(this.where) && this.ways && !this.ways.dreams; }

  async #judge(run) {
    if (this.session && this.session.run !== run) this.#close();
    this.ways = null;
    if (run) {
      try {
        const ways = await this.app.get(`/api/runs/${run}/world_model`);
        if (run !== this.picker.run) return;
        this.ways = ways;
      } catch (error) {
        this.ways = {error: error.message};
      }
    }
    // Where there is no dream, the environment itself is what one comes for, unless one has asked for another.
    if (this.#barred() && !this.app.param("where")) {
      this.where = "real";
      this.places.press("real");
    }
    this.#controls();
    if (!this.session) this.#empty();
  }

  #empty() {
    const {run, error} = this.picker;
    const {ways} = this;
    const state = !run ? nothingSelected(this.app, "Pick one above or in Runs, then press Start.")
      : error || ways?.error ? emptyState("Nothing to play", error || ways.error)
      : this.#barred() ? emptyState("No world model", `${ways.algorithm} learns what to do and keeps no model of its world, so there is no dream to play in. Algorithms that learn one: ${ways.dreaming.join(", ")}.`, `gymlab train ${ways.experiment}`)
      : emptyState(...NO_GAME[this.where]);
    this.placeholder.replaceChildren(state);
  }

  async start() {
    this.#close();
    const wish = {run: this.picker.run, checkpoint: this.picker.checkpoint, where: this.where, by: this.where === "saved" ? "agent" : this.by, seed: Number(this.seed.value), deterministic: this.deterministic.checked, likeliest: this.likeliest.checked};
    this.button.disabled = true;
    this.message.textContent = "opening…";
    try {
      const session = await this.app.post("/api/play", wish);
      this.session = {...session, run: wish.run};
      this.message.textContent = "";
      await this.#opened(session);
    } catch (error) {
      this.message.textContent = "";
      this.app.toast(error.message, "error");
    }
    this.#controls();
  }

  async #opened(session) {
    this.placeholder.replaceChildren();
    this.table.hidden = false;
    this.stage.load(session);
    this.keys.load(session.buttons);
    const [yours, saved] = [session.by === "you", session.where === "saved"];
    this.pace.hidden = !yours;
    this.pacing = "turns";
    this.pace.press("turns");
    this.rate.value = nearestRate(yours ? YOUR_RATE : Math.min(MOST_RATE, session.fps));
    this.backButton.hidden = this.slider.hidden = !saved;
    this.stepButton.hidden = yours;
    this.nextButton.textContent = saved ? "Next" : "New episode";
    this.#listed();
    await this.#shown(session.state);
    // Keys are for the game now; space would press Start again.
    this.stage.screen.focus({preventScroll: true});
    if (!yours && !saved) this.toggle();
  }

  /** The saved episodes, of which one is open. */
  #listed() {
    const {episodes = [], counts = {}} = this.session;
    this.list.hidden = !episodes.length;
    const of = (split) => episodes.filter((entry) => entry.split === split);
    const names = {test: "Test", train: "Train"};
    const row = (entry) => element("button", {type: "button", class: "play-row", "data-index": entry.index, onclick: () => { this.pause(); this.#go({episode: entry.index}); }},
      element("span", {class: "play-name", title: entry.name}, entry.name), element("span", {class: "number muted"}, entry.length === null ? "film" : `${compact(entry.length)} steps`), element("span", {class: "number"}, entry.return === null ? "" : compact(entry.return)));
    this.list.replaceChildren(...["test", "train"].filter((split) => of(split).length).map((split) => element("section", {}, element("h3", {}, `${names[split]} `, element("span", {class: "muted"}, counts[split] > of(split).length ? `${of(split).length} newest of ${counts[split].toLocaleString("en-US")}` : String(counts[split]))), ...of(split).map(row))));
  }

  /** Run or stop what goes by itself. */
  toggle() {
    if (!this.session) return;
    if (this.playing) this.pause();
    else {
      this.playing = true;
      this.#buttons();
      if (this.state.ending !== null) this.begin();
      this.#run();
    }
  }

  pause() {
    this.playing = false;
    this.#buttons();
  }

  #buttons() {
    if (!this.session) return;
    const {nothing, together} = this.session.hints;
    const hints = ["Press a key, or a button here.", this.pacing === "runs" && nothing ? `Without a key: ${nothing}.` : "", together ? `Several ${together}.` : ""];
    this.hint.textContent = this.session.by === "you" ? hints.filter(Boolean).join(" ") : "";
    this.playButton.textContent = this.playing ? "❚❚ Pause" : "▶ Play";
    this.playButton.hidden = this.session.by === "you" && this.session.where !== "saved" && this.pacing === "turns";
    this.stepButton.disabled = this.state?.ending !== null;
  }

  #pressed(when) {
    if (!this.session || this.session.where === "saved") return;
    this.pressedAt ??= when;
    if (this.state.ending !== null) {
      // The key that came too late is not the first of the next episode.
      this.keys.take();
      this.pressedAt = null;
      return;
    }
    if (this.pacing === "runs") this.playing = true;
    this.wake?.();
    this.#run();
  }

  #wantsStep() {
    if (!this.session || this.state.ending !== null) return false;
    if (this.session.by === "you" && this.pacing === "turns") return this.keys.waiting;
    return this.playing;
  }

  /** Steps as long as they are wanted, one at a time, no faster than the rate. */
  async #run() {
    if (this.running) return;
    this.running = true;
    const {session} = this;
    let held = false;
    while (session === this.session && this.#wantsStep()) {
      const began = performance.now();
      if (!(await this.#step(this.keys.take()))) break;
      const turns = session.by === "you" && this.pacing === "turns";
      const wait = Math.max(1000 / Number(this.rate.value), turns && !held ? HOLD_MILLISECONDS : 0) - (performance.now() - began);
      held = true;
      if (wait > 0) await new Promise((resolve) => { this.wake = turns ? () => { held = false; resolve(); } : null; setTimeout(resolve, wait); });
    }
    this.running = false;
    if (this.session && this.state.ending !== null) this.pause();
  }

  async #step(keys) {
    const pressed = this.pressedAt;
    this.pressedAt = null;
    const state = await this.#ask("step", {keys});
    if (!state) return false;
    if (state.moved && pressed) {
      this.latency = performance.now() - pressed;
      this.speed.textContent = `${Math.round(this.latency)} ms from key to picture, ${Math.round(state.milliseconds)} of them for the step`;
    }
    return true;
  }

  async begin() {
    this.stage.forget();
    this.keys.take();
    await this.#ask("begin", {});
  }

  /** Moving a slider asks more often than is answered: only the newest place is asked for. */
  async #go(place) {
    this.wanted = place;
    if (this.going) return;
    this.going = true;
    while (this.wanted) {
      const body = this.wanted;
      this.wanted = null;
      if (!(await this.#ask("go", body))) break;
    }
    this.going = false;
  }

  async #ask(what, body) {
    const {session} = this;
    try {
      const state = await this.app.post(`/api/play/${session.id}/${what}`, body);
      if (session !== this.session) return null;
      await this.#shown(state);
      return state;
    } catch (error) {
      this.pause();
      this.app.toast(error.message, "error");
      if (error.status === 404) this.#close();
      return null;
    }
  }

  async #shown(state) {
    this.state = state;
    await this.stage.show(state);
    if (this.session.where === "saved") {
      this.slider.max = state.length;
      this.slider.value = state.step;
      for (const row of this.list.querySelectorAll(".play-row")) row.setAttribute("aria-current", String(Number(row.dataset.index) === state.episode - 1));
    }
    this.#buttons();
  }

  #leave() {
    if (this.session) this.app.post(`/api/play/${this.session.id}/close`, {}).catch(() => {});
  }

  #close() {
    this.pause();
    this.#leave();
    this.session = this.state = null;
    this.keys.load([]);
    this.table.hidden = this.stage.charts.hidden = true;
    this.speed.textContent = "";
    this.#empty();
  }
}

function nearestRate(wanted) {
  return String(RATES.reduce((best, rate) => (Math.abs(rate - wanted) < Math.abs(best - wanted) ? rate : best)));
}
