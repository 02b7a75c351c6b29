// Tab "Runs": every run with status, result and a small curve; pick one or several.

import {ago, compact, element, emptyState, nothingSelected} from "./dom.js";
import {sparkline} from "./charts.js";

export const id = "runs";
export const title = "Runs";

const SHOWN_AT_FIRST = 200;
const UNUSABLE = ["damaged", "incomplete"];
const STATUS_ORDER = ["running", "crashed", "damaged", "incomplete", "stopped", "finished"];
const COLUMNS = [
  {key: "id", label: "run", value: (run) => run.id},
  {key: "status", label: "status", value: (run) => STATUS_ORDER.indexOf(run.status)},
  {key: "experiment", label: "experiment", value: (run) => run.experiment},
  {key: "algo", label: "algorithm", value: (run) => run.algo},
  {key: "seed", label: "seed", value: (run) => run.seed, number: true},
  {key: "steps", label: "env steps", value: (run) => run.env_steps, number: true, falling: true},
  {key: "return", label: "return [95%]", value: (run) => run.score?.mean, number: true, falling: true},
  {key: "curve", label: "return over the run"},
  {key: "alerts", label: "alerts", value: (run) => run.alerts, number: true, falling: true},
  {key: "age", label: "started", value: (run) => run.started, number: true, falling: true},
];

/** Rows for a filter and an order: each word of the filter occurs somewhere in the run; unknown values come last. */
export function arranged(runs, filter, sort, reversed) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (run) => [run.id, run.experiment, run.algo, run.status, run.env_id, `seed ${run.seed}`].join(" ").toLowerCase();
  const found = runs.filter((run) => words.every((word) => text(run).includes(word)));
  const column = COLUMNS.find((candidate) => candidate.key === sort && candidate.value) ?? COLUMNS.find((candidate) => candidate.key === "age");
  const known = (run) => column.value(run) !== null && column.value(run) !== undefined;
  const sign = Boolean(column.falling) !== reversed ? -1 : 1;
  return found.sort((one, other) => {
    if (known(one) !== known(other)) return known(one) ? -1 : 1;
    const [left, right] = [column.value(one), column.value(other)];
    return left === right ? one.id.localeCompare(other.id) : (left < right ? -1 : 1) * sign;
  });
}

/** The return in words: mean, interval, where it comes from. */
export function scoreText(score) {
  if (!score) return {main: "–", more: ""};
  if (score.mean === null) return {main: "–", more: score.note ?? ""};
  const range = score.min == null ? "" : `range ${compact(score.min)} to ${compact(score.max)}`;
  const single = score.n === 1 ? "n=1, no interval" : range;
  const more = score.ci95 ? `[${compact(score.ci95[0])}, ${compact(score.ci95[1])}]` : score.note ?? {best: "best so far", train: "training", test: single}[score.source];
  return {main: compact(score.mean), more, solved: score.solved === true};
}

class RunsTab {
  constructor(root, app) {
    this.app = app;
    this.rows = new Map();
    this.most = SHOWN_AT_FIRST;
    this.search = element("input", {type: "search", placeholder: "Filter: cartpole ppo running", "aria-label": "Filter runs", value: app.param("q"), oninput: () => { app.setParam("q", this.search.value.trim()); this.draw(); }});
    this.count = element("span", {class: "muted small", role: "status"});
    const all = element("button", {type: "button", onclick: () => app.select([...app.selected, ...this.shown.filter((run) => !UNUSABLE.includes(run.status)).map((run) => run.id)])}, "Select shown");
    const none = element("button", {type: "button", class: "quiet", onclick: () => app.select([])}, "Clear");
    this.toolbar = element("div", {class: "toolbar"}, this.search, this.count, element("span", {class: "spacer"}), all, none, element("button", {type: "button", class: "primary", onclick: () => app.show("learning")}, "Compare learning"));
    this.head = element("tr");
    this.body = element("tbody");
    this.more = element("button", {type: "button", hidden: true, onclick: () => { this.most = Infinity; this.draw(); }});
    this.table = element("div", {class: "card scroll runs-card"}, element("table", {class: "runs-table"}, element("thead", {}, this.head), this.body));
    this.nothing = element("div");
    root.append(this.toolbar, this.nothing, this.table, this.more);
    app.onRuns(() => this.draw());
    app.onSelection(() => this.draw());
    app.onTheme(() => this.draw());
    app.onParams(() => { this.search.value = app.param("q"); this.draw(); });
    this.draw();
  }

  draw() {
    const {app} = this;
    const [sort, direction] = app.param("sort", "age").split(":");
    const reversed = direction === "r";
    this.shown = arranged([...app.runs], app.param("q"), sort, reversed);
    this.#drawHead(sort, reversed);
    this.count.textContent = app.loaded ? `${this.shown.length === app.runs.length ? "" : `${this.shown.length} of `}${app.runs.length} run${app.runs.length === 1 ? "" : "s"}` : "Reading runs …";
    this.#drawNothing();
    const visible = this.shown.slice(0, this.most);
    this.more.hidden = visible.length === this.shown.length;
    this.more.textContent = `Show all ${this.shown.length}`;
    const wanted = visible.map((run) => this.#row(run));
    for (const [name] of this.rows) if (!app.run(name)) this.rows.delete(name);
    // Rows are moved only when the order has changed, so that focus stays where it is.
    if (wanted.length !== this.body.children.length || wanted.some((row, index) => row !== this.body.children[index])) this.body.replaceChildren(...wanted);
  }

  #drawNothing() {
    const {app} = this;
    this.table.hidden = !this.shown.length;
    this.toolbar.hidden = app.loaded && !app.runs.length;
    if (this.shown.length || !app.loaded) this.nothing.replaceChildren();
    else if (app.runs.length) this.nothing.replaceChildren(emptyState("No run is like that", "Every word of the filter must occur in a run's name, experiment, algorithm or status."));
    else this.nothing.replaceChildren(nothingSelected(app));
  }

  #drawHead(sort, reversed) {
    const key = `${sort}:${reversed}`;
    if (this.headKey === key) return;
    this.headKey = key;
    const cells = COLUMNS.map((column) => {
      const active = column.key === sort;
      const falling = Boolean(column.falling) !== reversed;
      const order = active ? (falling ? "descending" : "ascending") : "none";
      const press = () => { this.app.setParam("sort", active && !reversed ? `${column.key}:r` : column.key); this.draw(); };
      const content = column.value ? element("button", {type: "button", class: "sort", onclick: press}, column.label, element("span", {"aria-hidden": "true"}, active ? (falling ? " ↓" : " ↑") : "")) : column.label;
      return element("th", {class: `${column.number ? "number" : ""} col-${column.key}`, "aria-sort": column.value ? order : null}, content);
    });
    this.head.replaceChildren(element("th", {class: "col-pick"}, element("span", {class: "visually-hidden"}, "selected")), ...cells);
  }

  #row(run) {
    const selected = this.app.selected.includes(run.id);
    const key = JSON.stringify([run, selected, selected ? this.app.colour(run.id) : ""]);
    const kept = this.rows.get(run.id);
    if (kept?.key === key) {
      kept.age.textContent = ago(run.started);
      return kept.row;
    }
    const age = element("td", {class: "number muted col-age"}, ago(run.started));
    const row = kept?.row ?? element("tr");
    const focused = kept && row.contains(document.activeElement) ? document.activeElement.dataset.role : null;
    row.className = `${selected ? "selected" : ""} ${UNUSABLE.includes(run.status) ? "unusable" : ""}`;
    row.dataset.run = run.id;
    row.replaceChildren(...this.#cells(run, selected), age);
    if (focused) row.querySelector(`[data-role="${focused}"]`)?.focus();
    this.rows.set(run.id, {key, row, age});
    return row;
  }

  #cells(run, selected) {
    const {app} = this;
    const unusable = UNUSABLE.includes(run.status);
    const toggle = () => app.select(selected ? app.selected.filter((other) => other !== run.id) : [...app.selected, run.id], run.id);
    const open = () => { app.select([run.id]); app.show("learning"); };
    const box = element("input", {type: "checkbox", "data-role": "pick", "aria-label": `Select ${run.id}`, onchange: toggle, disabled: unusable});
    box.checked = selected;
    if (selected) box.style.accentColor = app.colour(run.id);
    const name = unusable ? element("span", {class: "run-name"}, run.id) : element("button", {type: "button", class: "link run-name", "data-role": "open", title: "Open its learning curves", onclick: open}, run.id);
    const first = [element("td", {class: "col-pick"}, box), element("td", {class: "col-id"}, name, run.status === "crashed" ? element("div", {class: "muted small reason"}, run.reason) : null), element("td", {class: "col-status"}, statusPill(run))];
    if (unusable) return [...first, element("td", {class: "muted small col-reason", colspan: COLUMNS.length - 3}, run.reason)];
    const score = scoreText(run.score);
    const result = element("td", {class: "number col-return"}, element("b", {}, score.main), score.more ? element("span", {class: "muted small"}, ` ${score.more}`) : null, score.solved ? element("span", {class: "solved", title: "reached the threshold"}, " ✓") : null);
    const label = run.sparkline.length > 1 ? `return from ${compact(run.sparkline[0])} to ${compact(run.sparkline.at(-1))}` : "";
    return [
      ...first,
      element("td", {class: "col-experiment"}, run.experiment ?? "–"),
      element("td", {class: "col-algo"}, run.algo ?? "–"),
      element("td", {class: "number col-seed"}, run.seed ?? "–"),
      element("td", {class: "number col-steps"}, run.env_steps === null ? "–" : run.env_steps.toLocaleString("en-US")),
      result,
      element("td", {class: "col-curve"}, sparkline(run.sparkline, {label})),
      element("td", {class: "number col-alerts"}, run.alerts ? element("span", {class: "count"}, String(run.alerts)) : run.alerts === null ? "?" : "–"),
    ];
  }
}

/** The status as a small label; a run that trains shows how far it is. */
export function statusPill(run) {
  const share = run.status === "running" && run.budget && run.env_steps !== null ? ` ${Math.floor((100 * run.env_steps) / run.budget)}%` : "";
  return element("span", {class: `pill ${run.status}`, title: run.reason || run.status}, run.status + share);
}

export function mount(root, app) {
  new RunsTab(root, app);
}
