// Tab "Learning": curves of any metric, several runs overlaid, intervals over seeds, alerts and changes on the axis, live while a run trains.

import {LineChart} from "./charts.js";
import {compact, duration, element, nothingSelected, saveFile} from "./dom.js";
import {ChangeForm} from "./learning_form.js";
import {LearningData} from "./learning_data.js";

export const id = "learning";
export const title = "Learning";

const AT_FIRST = ["train/roll/ep_rew/mean", "val/roll/ep_rew/mean", "train/loss/policy", "train/loss/value", "train/loss/total", "train/opt/policy/entropy", "train/roll/ep_len/mean"];
const CHARTS_AT_FIRST = 4;
const MOST_CHARTS = 12;
const HEIGHTS = {one: 380, many: 230};

class LearningTab {
  constructor(root, app) {
    this.app = app;
    this.data = new LearningData(app);
    this.charts = new Map();
    this.visible = false;
    this.form = new ChangeForm(app);
    this.empty = element("div");
    this.notes = element("div", {class: "notes"});
    this.grid = element("div", {class: "chart-grid"});
    this.events = element("section", {class: "card events", "aria-label": "Alerts and changes"});
    this.frame = element("div", {class: "learning"}, this.#picker(), element("div", {class: "learning-main"}, this.#toolbar(), this.notes, this.grid, this.form.root, this.events));
    root.append(this.empty, this.frame);
    app.onSelection(() => this.#changed());
    app.onParams(() => this.#changed());
    app.onTheme(() => this.draw());
    app.onRuns(() => (app.selected.length ? this.refresh() : this.draw()));
  }

  // Settings, all kept in the address.
  get axis() { return this.app.param("x") === "time" ? "time" : "env_steps"; }
  get smoothing() { return Math.min(0.99, Math.max(0, Number(this.app.param("smooth", "0")) || 0)); }
  get log() { return this.app.param("log") === "1"; }
  get seeds() { return this.app.param("seeds") === "1" && this.data.groups().length > 0; }

  /** The part of the axis that is looked at; null for all of it. */
  get zoom() {
    const ends = this.app.param("zoom").split(":").map(Number);
    return this.app.param("zoom") && ends.length === 2 && ends.every(Number.isFinite) && ends[0] < ends[1] ? ends : null;
  }

  get metrics() {
    const given = this.app.param("m").split(",").filter(Boolean);
    if (given.length) return given.slice(0, MOST_CHARTS);
    const known = new Set(this.data.metrics().map((metric) => metric.name));
    return AT_FIRST.filter((name) => known.has(name)).slice(0, CHARTS_AT_FIRST);
  }

  #picker() {
    this.search = element("input", {type: "search", placeholder: "Find a metric", "aria-label": "Find a metric", oninput: () => this.#drawPicker()});
    this.list = element("div", {class: "metric-list", role: "group", "aria-label": "Metrics"});
    const details = element("details", {class: "card picker", open: window.innerWidth > 900}, element("summary", {}, element("h3", {}, "Metrics")), this.search, this.list);
    return details;
  }

  #toolbar() {
    const {app} = this;
    const axis = (key, label) => element("button", {type: "button", "data-axis": key, onclick: () => { app.setParam("zoom", ""); this.#set("x", key === "time" ? "time" : ""); }}, label);
    this.axes = element("div", {class: "segments", role: "group", "aria-label": "Axis"}, axis("env_steps", "env steps"), axis("time", "time"));
    this.slider = element("input", {type: "range", min: "0", max: "0.99", step: "0.01", "aria-label": "Smoothing", oninput: () => { app.setParam("smooth", this.slider.value === "0" ? "" : this.slider.value); this.draw(); }});
    this.sliderText = element("span", {class: "muted slider-value"});
    this.logButton = element("button", {type: "button", class: "toggle", onclick: () => this.#set("log", this.log ? "" : "1")}, "log scale");
    this.seedsButton = element("button", {type: "button", class: "toggle", onclick: () => this.#set("seeds", app.param("seeds") === "1" ? "" : "1")}, "mean over seeds");
    this.zoomButton = element("button", {type: "button", onclick: () => this.#set("zoom", "")}, "Whole axis");
    const save = element("button", {type: "button", onclick: () => this.#save()}, "CSV");
    save.title = "What is shown, as a file";
    return element("div", {class: "toolbar"}, this.axes, element("label", {}, "smoothing", this.slider, this.sliderText), this.logButton, this.seedsButton, this.zoomButton, element("span", {class: "spacer"}), save);
  }

  #set(name, value) {
    this.app.setParam(name, value);
    this.draw();
    this.refresh();
  }

  #changed() {
    this.draw();
    this.refresh();
  }

  show() {
    this.visible = true;
    this.draw();
    this.refresh();
  }

  hide() {
    this.visible = false;
  }

  /** Ask for what is new, and draw it. */
  async refresh() {
    if (!this.visible || !this.app.loaded || !this.app.selected.length) return;
    const question = () => JSON.stringify([this.metrics, this.axis, this.seeds, this.zoom, this.app.selected]);
    const asked = question();
    let changed = false;
    try {
      changed = await this.data.refresh(this.metrics, this.axis, this.seeds, this.zoom);
    } catch (error) {
      this.app.toast(error.message, "error");
    }
    if (changed) this.draw();
    this.form.update(this.data);
    // The first answer tells which metrics there are; another choice meanwhile asks again at once.
    if (changed && question() !== asked) await this.refresh();
  }

  draw() {
    if (!this.visible) return;
    const {app} = this;
    const nothing = !app.selected.length;
    this.frame.hidden = nothing;
    this.empty.replaceChildren(...(nothing ? [nothingSelected(app, "Pick one or several in Runs: their curves are drawn here, one over the other.")] : []));
    if (nothing) return;
    this.#drawToolbar();
    this.#drawPicker();
    this.notes.replaceChildren(...this.data.notes(this.seeds).map((note) => element("div", {class: `notice ${note.bad ? "bad" : ""}`}, note.text)));
    this.#drawCharts();
    this.#drawEvents();
  }

  #drawToolbar() {
    for (const button of this.axes.children) button.setAttribute("aria-pressed", String(button.dataset.axis === this.axis));
    this.slider.value = String(this.smoothing);
    this.sliderText.textContent = this.smoothing ? this.smoothing.toFixed(2) : "off";
    this.zoomButton.hidden = !this.zoom;
    this.logButton.setAttribute("aria-pressed", String(this.log));
    const possible = this.data.groups().length > 0;
    this.seedsButton.disabled = !possible;
    this.seedsButton.title = possible ? "Mean over the runs of an experiment with the 95% interval, or the range of fewer than 5" : "Select two or more runs of one experiment";
    this.seedsButton.setAttribute("aria-pressed", String(this.seeds));
  }

  #drawPicker() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = this.data.metrics();
    const shown = all.filter((metric) => words.every((word) => `${metric.name} ${metric.about}`.toLowerCase().includes(word)));
    const chosen = this.metrics;
    const key = JSON.stringify([shown.map((metric) => metric.name), chosen]);
    if (key === this.pickerKey) return;
    this.pickerKey = key;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.value : null;
    const groups = new Map();
    for (const metric of shown) groups.set(metric.group, [...(groups.get(metric.group) ?? []), metric]);
    const rows = [...groups].map(([group, members]) => element("fieldset", {}, element("legend", {}, group), members.map((metric) => this.#choice(metric, group, chosen))));
    this.list.replaceChildren(...(rows.length ? rows : [element("p", {class: "muted"}, all.length ? "No metric has that in its name." : "No metrics yet: a run writes them at its first epoch.")]));
    if (focused) this.list.querySelector(`input[value="${CSS.escape(focused)}"]`)?.focus();
  }

  #choice(metric, group, chosen) {
    const box = element("input", {type: "checkbox", value: metric.name, onchange: () => this.#toggle(metric.name)});
    box.checked = chosen.includes(metric.name);
    return element("label", {class: "metric", title: metric.about || metric.name}, box, element("span", {}, metric.name.startsWith(`${group}/`) ? metric.name.slice(group.length + 1) : metric.name));
  }

  #toggle(name) {
    const chosen = this.metrics;
    const wanted = chosen.includes(name) ? chosen.filter((other) => other !== name) : [...chosen, name];
    if (wanted.length > MOST_CHARTS) this.app.toast(`At most ${MOST_CHARTS} charts at a time.`);
    if (!wanted.length) this.app.toast("One chart at least stays.");
    else this.app.setParam("m", wanted.slice(0, MOST_CHARTS).join(","));
    this.pickerKey = null;
    this.draw();
    this.refresh();
  }

  #drawCharts() {
    const wanted = this.metrics;
    for (const [name, chart] of this.charts) {
      if (!wanted.includes(name)) {
        chart.remove();
        this.charts.delete(name);
      }
    }
    this.grid.classList.toggle("one", wanted.length === 1);
    const about = new Map(this.data.metrics().map((metric) => [metric.name, metric.about]));
    const marks = this.data.marks(this.axis);
    const xRange = this.zoom ?? this.data.range(wanted);
    for (const name of wanted) {
      const chart = this.charts.get(name) ?? this.#newChart(name);
      if (this.grid.children[wanted.indexOf(name)] !== chart.root) this.grid.append(chart.root);
      chart.setHeight(wanted.length === 1 ? HEIGHTS.one : HEIGHTS.many);
      const time = this.axis === "time";
      const sampled = this.app.selected.some((run) => this.data.runs.get(run)?.exact === false);
      const caption = element("span", {class: "chart-caption"}, name, sampled ? element("span", {class: "pill", title: "Some rows of the file, until all of them are read"}, "sample") : null, about.get(name) ? element("span", {class: "muted small"}, about.get(name)) : null);
      chart.update({series: this.data.lines(name, {smoothing: this.smoothing, seeds: this.seeds}), marks, xRange, log: this.log, title: caption, label: name, xLabel: time ? "time" : "env steps", xFormat: time ? duration : compact, note: this.#chartNote(name)});
    }
  }

  #chartNote(name) {
    const waiting = this.app.selected.some((run) => { const state = this.data.runs.get(run); return !state || (!state.question && !state.error); });
    const drawn = this.app.selected.some((run) => this.data.runs.get(run)?.series[name]?.x.length);
    return waiting && !drawn ? "Reading …" : "";
  }

  #newChart(name) {
    const others = (x) => { for (const [other, chart] of this.charts) if (other !== name) chart.showAt(x); };
    const chart = new LineChart(this.grid, {title: name, onHover: others, onZoom: (from, to) => this.#set("zoom", `${Number(from.toPrecision(6))}:${Number(to.toPrecision(6))}`)});
    chart.root.classList.add("card");
    chart.root.dataset.metric = name;
    this.charts.set(name, chart);
    return chart;
  }

  #drawEvents() {
    const alerts = [];
    const changes = [];
    for (const run of this.app.selected) {
      const marks = this.data.runs.get(run)?.marks;
      for (const alert of marks?.alerts ?? []) alerts.push(this.#alertRow(run, alert));
      for (const change of marks?.changes ?? []) changes.push(this.#eventRow(run, `${change.env_steps.toLocaleString("en-US")}`, element("span", {}, change.text, element("span", {class: "muted"}, ` by ${change.source}`))));
      for (const wish of marks?.waiting ?? []) changes.push(this.#eventRow(run, "next epoch", element("span", {}, wish, element("span", {class: "muted"}, " asked for"))));
    }
    const key = JSON.stringify([this.app.selected, this.app.selected.map((run) => this.data.runs.get(run)?.marks), document.documentElement.dataset.theme]);
    if (key === this.eventKey) return;
    this.eventKey = key;
    const section = (heading, rows, none) => [element("h3", {}, heading), rows.length ? element("ul", {class: "event-list"}, rows) : element("p", {class: "muted"}, none)];
    this.events.replaceChildren(...section("Alerts", alerts, "None: nothing looked wrong."), ...section("Changes of hyperparameters", changes, "None. A run that trains can be changed here, or with gymlab set."));
  }

  #alertRow(run, alert) {
    const times = {1: "once", 2: "twice"}[alert.count] ?? `${alert.count} times`;
    const span = `${alert.first_env_steps.toLocaleString("en-US")} – ${alert.last_env_steps.toLocaleString("en-US")}`;
    const show = element("button", {type: "button", class: "link", title: "Draw this metric", onclick: () => { if (!this.metrics.includes(alert.metric)) this.#toggle(alert.metric); this.charts.get(alert.metric)?.root.scrollIntoView({block: "center"}); }}, alert.metric);
    return this.#eventRow(run, span, element("span", {}, element("b", {class: "alert-name"}, alert.id.replaceAll("_", " ")), ` ${alert.message} `, element("span", {class: "muted"}, `${times}, ${alert.epochs} epoch${alert.epochs === 1 ? "" : "s"} in all · `), show, element("span", {class: "tip"}, alert.tip)));
  }

  #eventRow(run, place, content) {
    const dot = element("span", {class: "dot", title: run});
    dot.style.background = this.app.colour(run);
    return element("li", {}, dot, element("span", {class: "muted place"}, place), content);
  }

  /** What is shown, one line a point. */
  #save() {
    const lines = [["run", "metric", this.axis === "time" ? "seconds" : "env_steps", "value", "raw", "low", "high"].join(",")];
    for (const name of this.metrics) {
      for (const line of this.data.lines(name, {smoothing: this.smoothing, seeds: this.seeds})) {
        line.x.forEach((x, index) => lines.push([`"${line.id.replaceAll('"', '""')}"`, name, x, line.y[index], line.raw?.[index] ?? "", line.low?.[index] ?? "", line.high?.[index] ?? ""].join(",")));
      }
    }
    saveFile("learning.csv", `${lines.join("\n")}\n`);
  }
}

let tab;

export function mount(root, app) {
  tab = new LearningTab(root, app);
}

export function show() {
  tab.show();
}

export function hide() {
  tab.hide();
}
