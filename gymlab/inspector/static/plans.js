// Plans: the best sequences of actions that a planning agent considered at a step, what it expected of them, and how far its model follows the world.

import {LineChart, titled} from "./charts.js";
import {element, precise} from "./dom.js";

const SERIES = {best: 2, others: 8, drift: 3};

export class PlansView {
  constructor(app) {
    this.app = app;
    this.dimension = 0;
    this.told = element("p", {class: "small muted", role: "status"});
    this.toolbar = element("div", {class: "toolbar"});
    const holder = () => element("div", {});
    const [actions, returns, drift] = [holder(), holder(), holder()];
    this.actions = new LineChart(actions, {title: "Actions", height: 220, xLabel: "steps ahead", whole: true});
    this.returns = new LineChart(returns, {title: "Expected return", height: 190, xLabel: "steps ahead", whole: true});
    this.drift = new LineChart(drift, {title: "Drift of the latent", height: 190, xLabel: "steps ahead", whole: true});
    this.root = element("div", {class: "grid", hidden: true}, element("div", {class: "card"}, this.toolbar, actions, this.told), element("div", {class: "card"}, returns, drift));
    app.onTheme(() => this.found && this.#draw());
  }

  async show(trace, query) {
    this.found = await this.app.get(`/api/traces/${trace.id}/plans`, query);
    this.dimension = Math.min(this.dimension, this.found.actions[0][0].length - 1);
    this.root.hidden = false;
    this.#draw();
  }

  hide() {
    this.found = null;
    this.root.hidden = true;
  }

  #draw() {
    const {found, dimension} = this;
    const colour = (kind) => this.app.css(`--series-${SERIES[kind]}`);
    const steps = (rows) => rows.map((_, row) => row + 1);
    // The best is drawn last, on top of the others.
    const lines = (rows) => rows.map((y, place) => ({id: `sequence-${place}`, label: place ? `number ${place + 1}` : "the best", colour: colour(place ? "others" : "best"), faint: place > 0, x: steps(y), y})).reverse();
    const names = found.actions[0][0].map((_, place) => `action ${place + 1}`);
    const select = element("select", {"aria-label": "Dimension of the action", onchange: () => { this.dimension = Number(select.value); this.#draw(); }}, names.map((name, value) => element("option", {value, selected: value === dimension}, name)));
    this.toolbar.replaceChildren(...(names.length > 1 ? [element("label", {class: "small muted"}, "Dimension", select)] : []));
    const what = found.choices ? "Choices of the best sequences" : "Actions of the best sequences";
    this.actions.update({title: what, series: lines(found.actions.map((rows) => rows.map((row) => row[dimension])))});
    this.returns.update({title: "Return expected along them", series: lines(found.returns)});
    const drift = [{id: "drift", label: "drift", colour: colour("drift"), x: steps(found.drift), y: found.drift}];
    this.drift.update({title: titled("Drift of the latent (1: as far as any two observations)", drift), series: drift});
    this.told.textContent = `Planned at step ${found.start}: the best of ${found.actions.length} is worth ${precise(found.values[0])}, the last of them ${precise(found.values.at(-1))} · taken: ${Array.from(found.taken, precise).join(", ")}`;
  }
}
