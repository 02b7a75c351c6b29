// One step in numbers beside its frame, and the table of all steps; only the rows in sight exist.

import {compact, element, precise} from "./dom.js";

const ROW = 26;
const SPARE = 8;
const END_TITLES = {terminated: "terminated", truncated: "truncated", cut: "cut here"};

/** The actions of a step as people read them: "left", "2", "0.31 -0.20". */
export function actionText(trace, table, row) {
  const action = table.action[row];
  if (table.label[row] !== null) return table.label[row];
  return Array.isArray(action) ? action.flat(3).map((part) => compact(part)).join(" ") : String(action);
}

/** Probabilities as bars, the chosen and the likeliest marked; for continuous actions mean, deviation and what was taken. */
export function actionBars(trace, table, row) {
  const probabilities = table.probabilities[row];
  if (probabilities) return element("div", {class: "bars", role: "list", "aria-label": "Action probabilities"}, choices(trace, table, row).map((choice) => bar(choice)));
  if (table.mean[row]) return element("div", {class: "bars", role: "list", "aria-label": "Action, mean and deviation"}, dimensions(trace, table, row).map((dimension) => gauge(dimension)));
  return element("p", {class: "small muted"}, "This algorithm tells no probabilities.");
}

function choices(trace, table, row) {
  const probabilities = table.probabilities[row];
  const space = trace.action_space;
  const action = table.action[row];
  if (space.type === "MultiBinary") {
    const pressed = action.flat(3);
    return probabilities.map((probability, place) => ({label: trace.labels[place] ?? `button ${place}`, probability, chosen: pressed[place] === 1, greedy: probability > 0.5}));
  }
  const start = space.type === "Discrete" ? [space.start] : space.start.flat(3);
  const sizes = space.type === "Discrete" ? [space.n] : space.nvec.flat(3);
  const taken = space.type === "Discrete" ? [action] : action.flat(3);
  const found = [];
  let offset = 0;
  sizes.forEach((size, part) => {
    const most = Math.max(...probabilities.slice(offset, offset + size));
    for (let place = 0; place < size; place += 1) {
      const number = place + start[part];
      const label = sizes.length === 1 ? trace.labels[number] ?? String(number) : `${part + 1}: ${number}`;
      found.push({label, probability: probabilities[offset + place], chosen: taken[part] === number, greedy: probabilities[offset + place] === most});
    }
    offset += size;
  });
  return found;
}

function bar({label, probability, chosen, greedy}) {
  const fill = element("span", {class: "bar-fill"});
  fill.style.width = `${Math.max(0, Math.min(1, probability)) * 100}%`;
  const marks = [chosen ? "chosen" : "", greedy ? "likeliest" : ""].filter(Boolean).join(", ");
  return element("div", {class: `bar ${chosen ? "chosen" : ""} ${greedy ? "greedy" : ""}`, role: "listitem", "aria-label": `${label}: ${(probability * 100).toFixed(1)} %${marks ? `, ${marks}` : ""}`},
    element("span", {class: "bar-mark", "aria-hidden": "true"}, chosen ? "●" : ""), element("span", {class: "bar-label", title: label}, label), element("span", {class: "bar-track"}, fill), element("span", {class: "bar-number"}, `${(probability * 100).toFixed(1)}%`));
}

function dimensions(trace, table, row) {
  const [action, mean, std] = [table.action[row].flat(3), table.mean[row], table.std[row]];
  const side = (name) => [trace.action_space[name]].flat(4);
  const [low, high] = [side("low"), side("high")];
  return action.map((taken, place) => {
    const bounds = [low[place] ?? low[0], high[place] ?? high[0]].map(Number);
    const bounded = bounds.every(Number.isFinite);
    const [from, to] = bounded ? bounds : [mean[place] - 3 * std[place], mean[place] + 3 * std[place]];
    return {label: trace.action_names[place] ?? `dimension ${place}`, taken, mean: mean[place], std: std[place], from, to};
  });
}

function gauge({label, taken, mean, std, from, to}) {
  const share = (value) => Math.max(0, Math.min(1, (value - from) / (to - from || 1)));
  const band = element("span", {class: "gauge-band"});
  band.style.left = `${share(mean - std) * 100}%`;
  band.style.width = `${(share(mean + std) - share(mean - std)) * 100}%`;
  const middle = element("span", {class: "gauge-mean"});
  middle.style.left = `${share(mean) * 100}%`;
  const point = element("span", {class: "gauge-taken"});
  point.style.left = `${share(taken) * 100}%`;
  return element("div", {class: "gauge", role: "listitem", "aria-label": `${label}: ${precise(taken)}, mean ${precise(mean)}, deviation ${precise(std)}`},
    element("span", {class: "gauge-label"}, label), element("span", {class: "gauge-number"}, element("b", {}, precise(taken)), element("span", {class: "muted"}, ` mean ${precise(mean)} ± ${precise(std)}`)),
    element("span", {class: "gauge-scale muted"}, compact(from), element("span", {class: "gauge-track"}, band, middle, point), compact(to)));
}

const COLUMNS = [
  ["Step", (table, row) => String(table.index[row]), "number"],
  ["Episode", (table, row) => `${table.episode[row]} · ${table.step[row]}`, "number"],
  ["Action", null, ""],
  ["p(action)", (table, row) => chosenProbability(table, row), "number"],
  ["Value", (table, row) => precise(table.value[row]), "number"],
  ["Reward", (table, row) => precise(table.reward[row]), "number"],
  ["Sum", (table, row) => precise(table.cumulative_reward[row]), "number"],
  ["MC return", (table, row) => precise(table.mc_return[row]), "number"],
  ["Advantage", (table, row) => precise(table.advantage?.[row]), "number"],
  ["End", null, ""],
];

function chosenProbability(table, row) {
  const [probabilities, action] = [table.probabilities[row], table.action[row]];
  if (!probabilities || Array.isArray(action)) return "–";
  return `${(probabilities[action - (table.start ?? 0)] * 100).toFixed(1)}%`;
}

/** The step table. `onPick(row)` when a row is clicked. */
export class StepTable {
  constructor(onPick) {
    this.onPick = onPick;
    this.rows = new Map();
    this.selected = -1;
    this.body = element("div", {class: "steps-body", role: "rowgroup"});
    const head = element("div", {class: "steps-row steps-head", role: "row"}, COLUMNS.map(([title, , kind]) => element("span", {role: "columnheader", class: kind}, title)));
    this.root = element("div", {class: "steps", role: "table", "aria-label": "Steps", tabindex: "0"}, head, this.body);
    this.root.addEventListener("scroll", () => this.#show(), {passive: true});
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("[data-row]");
      if (row) this.onPick(Number(row.dataset.row));
    });
    new ResizeObserver(() => this.#show()).observe(this.root);
  }

  load(trace, table) {
    Object.assign(this, {trace, table, selected: -1});
    table.start = trace.action_space.type === "Discrete" ? trace.action_space.start : 0;
    this.root.setAttribute("aria-rowcount", table.total + 1);
    this.body.style.height = `${table.total * ROW}px`;
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    this.root.scrollTop = 0;
    this.#show();
  }

  /** Mark a row, and bring it into sight if it is not. */
  select(row) {
    if (row === this.selected) return;
    this.rows.get(this.selected)?.removeAttribute("aria-selected");
    this.selected = row;
    this.rows.get(row)?.setAttribute("aria-selected", "true");
    const top = row * ROW;
    const seen = this.root.clientHeight - ROW;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + ROW > this.root.scrollTop + seen) this.root.scrollTop = top + ROW - seen + ROW * 3;
  }

  #show() {
    if (!this.table || !this.root.clientHeight) return;
    const first = Math.max(0, Math.floor(this.root.scrollTop / ROW) - SPARE);
    const last = Math.min(this.table.total - 1, Math.ceil((this.root.scrollTop + this.root.clientHeight) / ROW) + SPARE);
    for (const [row, made] of this.rows) {
      if (row < first || row > last) {
        made.remove();
        this.rows.delete(row);
      }
    }
    for (let row = first; row <= last; row += 1) {
      if (this.rows.has(row)) continue;
      const made = this.#row(row);
      this.rows.set(row, made);
      this.body.append(made);
    }
  }

  #row(row) {
    const {table} = this;
    const cells = COLUMNS.map(([title, text, kind]) => element("span", {role: "cell", class: kind}, text ? text(table, row) : title === "Action" ? this.#action(row) : this.#end(row)));
    const made = element("div", {class: `steps-row ${table.end[row] ? "last" : ""}`, role: "row", "data-row": row, "aria-rowindex": row + 2, "aria-selected": row === this.selected ? "true" : null}, cells);
    made.style.top = `${row * ROW}px`;
    return made;
  }

  #action(row) {
    const off = this.table.greedy[row] === false;
    return [actionText(this.trace, this.table, row), off ? element("span", {class: "off-mark", title: "Not the likeliest action"}, "≠") : ""];
  }

  #end(row) {
    const end = this.table.end[row];
    return end ? element("span", {class: `end-mark ${end}`}, END_TITLES[end]) : "";
  }
}
