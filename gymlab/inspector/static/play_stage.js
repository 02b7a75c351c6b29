// What a game looks like: its pictures, the numbers of the step, and how dream and reality drift apart.

import {LineChart, titled} from "./charts.js";
import {element, precise} from "./dom.js";

const SMALL = 200;
const TITLES = {frame: "Reality", dream: "Dream", difference: "Difference"};
const ENDINGS = {terminated: "terminated: the episode is over", truncated: "truncated: cut off at the time limit", unfinished: "saved up to here", over: "the film ends"};

export class PlayStage {
  constructor(app) {
    this.app = app;
    this.pictures = element("div", {class: "play-pictures"});
    this.badge = element("div", {class: "frame-badge", hidden: true});
    this.screen = element("div", {class: "play-screen", tabindex: "0", "aria-label": "The game"}, this.pictures, this.badge);
    this.facts = element("div", {class: "facts"});
    this.drift = element("p", {class: "readout", role: "status"});
    this.errors = element("div", {});
    this.returns = element("div", {});
    this.errorChart = new LineChart(this.errors, {title: "Error of the dream", height: 170, xLabel: "steps", whole: true});
    this.returnChart = new LineChart(this.returns, {title: "Return", height: 150, xLabel: "steps", whole: true});
    this.charts = element("div", {class: "play-charts"}, element("div", {class: "card play-drift"}, this.errors, this.drift), element("div", {class: "card"}, this.returns));
    app.onTheme(() => this.state && this.#draw());
  }

  /** Begin a game: `facts` are those of the session. */
  load(facts) {
    this.game = facts;
    const kinds = facts.where === "beside" ? ["frame", "dream", ...(facts.image ? ["difference"] : [])] : ["frame"];
    this.canvases = Object.fromEntries(kinds.map((kind) => [kind, element("canvas", {role: "img", "aria-label": kinds.length > 1 ? TITLES[kind] : "What is to be seen", "data-kind": kind, width: 1, height: 1})]));
    this.pictures.replaceChildren(...kinds.map((kind) => element("figure", {}, kinds.length > 1 ? element("figcaption", {}, TITLES[kind]) : "", this.canvases[kind])));
    this.pictures.dataset.count = kinds.length;
    this.charts.hidden = facts.where === "saved";
    this.errors.parentElement.hidden = facts.where !== "beside";
    this.forget();
  }

  /** Another episode: what was before is not in its charts. */
  forget() {
    this.rows = {step: [], real: [], dream: [], error: []};
  }

  /** Show where the game is; done when the pictures are on the page. */
  async show(state) {
    this.state = state;
    const {rows} = this;
    if (rows.step.at(-1) !== state.step) {
      rows.step.push(state.step);
      rows.real.push(state.return);
      rows.dream.push(state.dream_return ?? null);
      rows.error.push(state.error ?? null);
    }
    await Promise.all(Object.entries(this.canvases).map(([kind, canvas]) => paint(canvas, state[kind])));
    this.#draw();
  }

  #draw() {
    const {state, game} = this;
    this.badge.hidden = state.ending === null;
    this.badge.textContent = ENDINGS[state.ending] ?? state.ending ?? "";
    this.#facts();
    if (game.where === "saved") return;
    const colour = (place) => this.app.css(`--series-${place}`);
    const {step, real, dream, error} = this.rows;
    const lines = [{id: "real", label: game.where === "dream" ? "dream" : "reality", colour: colour(game.where === "dream" ? 2 : 8), x: step, y: real}];
    if (game.where === "beside") lines.push({id: "dream", label: "dream", colour: colour(2), x: step, y: dream});
    this.returnChart.update({title: titled("Return so far", lines), series: lines});
    if (game.where === "beside") this.#drawDrift(step, error, colour);
  }

  #drawDrift(step, error, colour) {
    const {distance, apart, worst, dream_ended: ended, error: newest} = this.state;
    const unit = this.game.image ? "RMS, share of the full range" : "RMS, in the units of the observation";
    const lines = [
      {id: "error", label: "dream against reality", colour: colour(2), x: step, y: error},
      {id: "distance", label: "half of how far observations lie apart", colour: colour(8), dashed: true, faint: true, x: step, y: step.map(() => distance / 2)},
    ];
    const marks = apart === null ? [] : [{x: apart, kind: "alert", title: "Apart", text: `From step ${apart} on the dream is another world.`}];
    this.errorChart.update({title: titled(`Error over time (${unit})`, lines), series: lines, marks});
    const parts = [newest === null ? "The dream has seen this and nothing since; the same actions lead both on." : `Error ${precise(newest)}.`];
    if (newest !== null) parts.push(apart === null ? "Together so far." : `Apart since step ${apart}.`);
    if (worst) parts.push(`Furthest off in ${worst.name}: ${precise(worst.dream)} in the dream, ${precise(worst.real)} in reality.`);
    if (ended !== null && ended !== undefined) parts.push(`The model took the episode to be over at step ${ended}.`);
    this.drift.textContent = parts.join(" ");
  }

  #facts() {
    const {state, game} = this;
    const {next} = state;
    const figure = (name, key, value) => element("div", {class: "figure"}, element("dt", {}, name), element("dd", {"data-figure": key}, typeof value === "string" ? value : precise(value)));
    const figures = [figure("Reward", "reward", state.reward), figure("Return", "return", state.return)];
    if (game.where === "beside") figures.push(figure("Dreamt reward", "dream_reward", state.dream_reward), figure("Dreamt return", "dream_return", state.dream_return));
    if (next && next.value !== null) figures.push(figure("Value", "value", next.value));
    const told = next ? ["Next action", next.action] : ["Action", state.action ?? "–"];
    const bars = (next?.bars ?? []).map(({label, probability}) => bar(label, probability, label === next.action));
    const place = game.where === "saved" ? state.place : `episode ${state.episode}`;
    const total = state.length === undefined ? "" : ` of ${state.length}`;
    this.facts.replaceChildren(
      element("div", {class: "facts-head"}, element("span", {class: "play-step"}, "Step ", element("b", {"data-figure": "step"}, String(state.step)), total), element("span", {class: "muted play-place", title: place}, place)),
      element("div", {class: "facts-action"}, element("span", {class: "muted small"}, told[0]), element("b", {"data-figure": "action"}, told[1])),
      bars.length ? element("div", {class: "bars", role: "list", "aria-label": "Action probabilities"}, bars) : "",
      element("dl", {class: "figures"}, figures),
    );
  }
}

function bar(label, probability, chosen) {
  const fill = element("span", {class: "bar-fill"});
  fill.style.width = `${Math.max(0, Math.min(1, probability)) * 100}%`;
  const number = `${(probability * 100).toFixed(1)}%`;
  return element("div", {class: `bar ${chosen ? "chosen" : ""}`, role: "listitem", "aria-label": `${label}: ${number}`},
    element("span", {class: "bar-mark", "aria-hidden": "true"}, chosen ? "●" : ""), element("span", {class: "bar-label", title: label}, label), element("span", {class: "bar-track"}, fill), element("span", {class: "bar-number"}, number));
}

async function paint(canvas, address) {
  const image = new Image();
  image.src = address;
  await image.decode();
  const {naturalWidth: width, naturalHeight: height} = image;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, {width, height});
  canvas.classList.toggle("pixels", Math.max(width, height) <= SMALL);
  canvas.style.aspectRatio = `${width} / ${height}`;
  canvas.getContext("2d").drawImage(image, 0, 0);
}
