// What the Learning tab knows of each selected run: curves that grow by what is new, intervals over seeds, alerts and changes.

const POINTS = 500;

/** Exponential moving average without the pull of its start; null stays null. */
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let norm = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

export class LearningData {
  constructor(app) {
    this.app = app;
    this.runs = new Map();
    this.bands = [];
    this.bandNotes = [];
    this.busy = false;
  }

  /** Metrics of the selected runs, each once, in the order in which they are shown. */
  metrics() {
    const found = new Map();
    for (const id of this.app.selected) for (const metric of this.runs.get(id)?.metrics ?? []) found.set(metric.name, metric);
    return [...found.values()];
  }

  state(id) {
    if (!this.runs.has(id)) this.runs.set(id, {metrics: [], series: {}, rows: 0, version: "", exact: true, read: 1, marks: null, seen: null, error: ""});
    return this.runs.get(id);
  }

  /** Read what is new for these metrics; returns whether anything has changed. One at a time: a slow answer delays the next question. */
  async refresh(wanted, axis, seeds, zoom) {
    if (this.busy) return false;
    this.busy = true;
    try {
      const changes = await Promise.all(this.app.selected.map((id) => this.#refreshRun(id, wanted, axis, zoom)));
      const changed = changes.some(Boolean);
      const banded = seeds ? await this.#refreshBands(wanted, axis, changed) : false;
      return changed || banded;
    } finally {
      this.busy = false;
    }
  }

  async #refreshRun(id, wanted, axis, zoom) {
    const state = this.state(id);
    const run = this.app.run(id);
    const seen = JSON.stringify([run?.status, run?.env_steps, run?.ended, run?.alerts]);
    const question = JSON.stringify([wanted, axis, zoom]);
    const known = state.question === question;
    if (!run || (known && state.seen === seen && state.exact && run.status !== "running")) return false;
    try {
      if (state.seen !== seen || !state.metrics.length) state.metrics = (await this.app.get(`/api/runs/${id}/metrics`)).metrics;
      if (wanted.length) await this.#readCurves(id, state, wanted, axis, zoom, known);
      state.marks = await this.app.get(`/api/runs/${id}/marks`);
      state.error = "";
      state.question = question;
      state.seen = seen;
    } catch (error) {
      const changed = state.error !== error.message;
      state.error = error.message;
      return changed;
    }
    return true;
  }

  async #readCurves(id, state, wanted, axis, zoom, known) {
    const longest = Math.max(0, ...Object.values(state.series).map((series) => series.x.length));
    const more = zoom ? {start: zoom[0], end: zoom[1]} : known && state.exact && longest <= 2 * POINTS ? {since: state.rows, version: state.version} : {};
    const answer = await this.app.get(`/api/runs/${id}/curves`, {metric: wanted, axis, points: POINTS, ...more});
    if (answer.from > 0) for (const [name, part] of Object.entries(answer.series)) append(state.series, name, part);
    else state.series = answer.series;
    Object.assign(state, {rows: answer.rows, version: answer.version, exact: answer.exact, read: answer.read, oddRows: answer.odd_rows});
  }

  /** Selected runs by experiment, those with more than one run; which of them have the same settings, the server says. */
  groups() {
    const found = new Map();
    for (const id of this.app.selected) {
      const experiment = this.app.run(id)?.experiment;
      if (experiment) found.set(experiment, [...(found.get(experiment) ?? []), id]);
    }
    return [...found].filter(([, members]) => members.length > 1);
  }

  async #refreshBands(wanted, axis, changed) {
    const groups = this.groups();
    const question = JSON.stringify([groups, wanted, axis]);
    if (!wanted.length || (this.bandQuestion === question && !changed && this.bandsExact)) return false;
    const answers = await Promise.all(groups.map(([, members]) => this.app.get("/api/bands", {run: members, metric: wanted, axis})));
    this.bands = answers.flatMap((answer) => answer.groups);
    this.bandNotes = answers.flatMap((answer) => answer.notes);
    this.bandsExact = answers.every((answer) => answer.exact);
    this.bandQuestion = question;
    return true;
  }

  /** Lines of one metric: every run, or the mean over seeds with its interval and the runs faintly behind. */
  lines(metric, {smoothing, seeds}) {
    const grouped = new Map();
    const several = seeds ? this.bands.filter((group) => group.runs.length > 1) : [];
    for (const group of several) for (const id of group.runs) grouped.set(id, group);
    const lines = [];
    for (const id of this.app.selected) {
      const series = this.runs.get(id)?.series[metric];
      if (!series) continue;
      const line = {id, label: id, colour: this.app.colour(id), x: series.x, y: smoothed(series.y, smoothing)};
      if (grouped.has(id)) lines.push({...line, faint: true});
      else if (smoothing) lines.push({...line, raw: series.y});
      else lines.push({...line, low: series.low, high: series.high, span: "least and greatest"});
    }
    for (const group of several) {
      const band = group.bands[metric];
      const first = this.app.selected.find((id) => grouped.get(id) === group);
      if (!band || !first) continue;
      lines.push({id: group.label, label: `${group.label}, mean of ${band.n}`, colour: this.app.colour(first), x: band.x, y: band.y, low: band.low, high: band.high, span: band.words, width: 2.4});
    }
    return lines;
  }

  /** One range for all charts, from the start of the runs on, so that they can be read against each other; null without data. */
  range(metrics) {
    const ends = this.app.selected.flatMap((id) => metrics.map((metric) => this.runs.get(id)?.series[metric]?.x.at(-1) ?? 0));
    const last = Math.max(0, ...ends);
    return last > 0 ? [0, last] : null;
  }

  /** Alerts and changes of the selected runs as marks on an axis. */
  marks(axis) {
    const many = this.app.selected.length > 1;
    const found = [];
    for (const id of this.app.selected) {
      const marks = this.runs.get(id)?.marks;
      const title = (text) => (many ? `${id}: ${text}` : text);
      for (const alert of marks?.alerts ?? []) found.push({x: axis === "time" ? alert.seconds : alert.first_env_steps, kind: "alert", title: title(alert.id.replaceAll("_", " ")), text: alert.message, tip: alert.tip});
      for (const change of marks?.changes ?? []) found.push({x: axis === "time" ? change.seconds : change.env_steps, kind: "change", title: title("changed"), text: change.text, tip: `by ${change.source}`});
    }
    return found.filter((mark) => mark.x !== null).sort((one, other) => one.x - other.x);
  }

  /** What a person should know about what is shown. */
  notes(seeds) {
    const found = seeds ? this.bandNotes.map((text) => ({text})) : [];
    for (const id of this.app.selected) {
      const state = this.runs.get(id);
      if (!this.app.run(id)) found.push({bad: true, text: `${id} is not in the list of runs any more.`});
      else if (state?.error) found.push({bad: true, text: `${id}: ${state.error}`});
      else if (state && !state.exact) found.push({text: `${id}: a sample of rows, while all of them are read (${Math.round(100 * state.read)}%).`});
      else if (state?.oddRows) found.push({text: `${id}: ${state.oddRows} damaged line${state.oddRows === 1 ? "" : "s"} of metrics.csv left out.`});
      for (const problem of state?.marks?.problems ?? []) found.push({bad: true, text: problem});
    }
    return found;
  }
}

function append(series, name, part) {
  const known = series[name] ?? (series[name] = {x: [], y: []});
  for (const key of ["low", "high"]) if (known[key]) known[key].push(...part.y);
  known.x.push(...part.x);
  known.y.push(...part.y);
}
