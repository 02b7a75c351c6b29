// Line charts on a canvas, with a crosshair, bands, marks that can be focused, and a readout; used by every tab.
//
//   const chart = new LineChart(parent, {title: "loss", height: 220, xLabel: "env steps", onPick: (x) => ...});
//   chart.update({series: [{id, label, colour, x, y, raw, low, high, span}], marks: [{x, kind, title, text, tip}], log: false});
//   chart.setCursor(1200);    // a line that stays, e.g. at the frame that is shown
//
// Options: whole for an axis of whole numbers, onPick(x) on a click or an arrow key, onHover(x or null), onZoom(from, to) after dragging over a part of the axis.
//
// x and y are arrays of one length, x increasing; y may hold null. `raw` is drawn faintly behind y, `low` and `high` as a band around it,
// which the readout calls by `span`. A series with `faint: true` stays in the background.

import {compact, element, precise} from "./dom.js";

const MARGIN = {top: 10, right: 12, bottom: 26, left: 54};
const LEAST_TICK_PIXELS = {x: 76, y: 30};

/** Round numbers that divide a range: about `most` of them, two at least, since one alone gives no scale. */
export function ticks(low, high, most) {
  if (!(high > low)) return [low];
  const found = roundNumbers(low, high, most);
  return found.length > 1 ? found : roundNumbers(low, high, 2 * most);
}

function roundNumbers(low, high, most) {
  const raw = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw * 0.999);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place += 1) found.push(Number((place * step).toPrecision(12)));
  return found;
}

function logTicks(low, high, most) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  if (last - first < 1) return ticks(low, high, most).filter((tick) => tick > 0);
  const every = Math.max(1, Math.ceil((last - first + 1) / most));
  const found = [];
  for (let power = first; power <= last; power += every) found.push(10 ** power);
  return found;
}

/** Index of the value nearest to x in an increasing array; -1 for an empty one. */
export function nearest(values, x) {
  if (!values.length) return -1;
  let low = 0;
  let high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(values[low] - x) <= Math.abs(values[high] - x) ? low : high;
}

export class LineChart {
  constructor(parent, options = {}) {
    this.options = {height: 220, xLabel: "", xFormat: compact, ...options};
    this.series = [];
    this.marks = [];
    this.cursor = null;
    this.hover = null;
    this.note = "";
    this.canvas = element("canvas", {"aria-hidden": "true"});
    this.markLayer = element("div", {class: "marks"});
    this.tooltip = element("div", {class: "tooltip", role: "status", hidden: true});
    this.noteLayer = element("div", {class: "chart-note", hidden: true});
    this.plot = element("div", {class: "plot", tabindex: "0", role: "group", "aria-label": options.title ?? "chart"}, this.canvas, this.noteLayer, this.markLayer, this.tooltip);
    this.plot.style.height = `${this.options.height}px`;
    this.titleLine = element("figcaption", {class: "chart-title"}, options.title ?? "");
    this.root = element("figure", {class: "chart"}, options.title === undefined ? null : this.titleLine, this.plot);
    parent.append(this.root);
    this.plot.addEventListener("pointerdown", (event) => this.#pressed(event));
    this.plot.addEventListener("pointerup", (event) => this.#released(event));
    this.plot.addEventListener("pointermove", (event) => this.#moved(event));
    this.plot.addEventListener("pointerleave", (event) => this.#left(event));
    this.plot.addEventListener("blur", () => this.#setHover(null));
    this.plot.addEventListener("click", (event) => this.#picked(event));
    this.plot.addEventListener("keydown", (event) => this.#key(event));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.plot);
  }

  /** Show other data; what is not given stays as it was. */
  update({series, marks, log, xLabel, xFormat, note, title, label, xRange} = {}) {
    if (series) this.series = series;
    if (marks) this.marks = marks;
    if (log !== undefined) this.log = log;
    if (xLabel !== undefined) this.options.xLabel = xLabel;
    if (xFormat) this.options.xFormat = xFormat;
    if (note !== undefined) this.note = note;
    if (xRange !== undefined) this.options.xRange = xRange;
    if (title !== undefined) this.titleLine.replaceChildren(title);
    if (label ?? title) this.plot.setAttribute("aria-label", this.#summary(label ?? title));
    this.draw();
  }

  setHeight(height) {
    this.options.height = height;
    this.plot.style.height = `${height}px`;
  }

  /** The chart in a sentence, for those who hear it. */
  #summary(name) {
    const ends = this.series.filter((series) => series.y.length).map((series) => `${series.label} from ${compact(series.y[0])} to ${compact(series.y.at(-1))}`);
    return `${name instanceof Node ? name.textContent : name}: ${ends.join("; ") || "no values"}`;
  }

  /** A line that stays at x; null takes it away. */
  setCursor(x) {
    this.cursor = x;
    this.draw();
  }

  /** Show crosshair and values at x, as if the pointer were there; null takes them away. */
  showAt(x) {
    this.hover = x;
    this.draw();
  }

  remove() {
    this.observer.disconnect();
    this.root.remove();
  }

  draw() {
    const width = this.plot.clientWidth;
    const height = this.options.height;
    if (!width) return;
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    this.colours = this.#colours();
    this.area = {left: MARGIN.left, top: MARGIN.top, right: width - MARGIN.right, bottom: height - MARGIN.bottom};
    this.range = this.#range();
    this.#drawNote();
    if (!this.range) {
      this.markLayer.replaceChildren();
      this.tooltip.hidden = true;
      return;
    }
    this.#axes(context);
    context.save();
    context.beginPath();
    context.rect(this.area.left, this.area.top - 2, this.area.right - this.area.left, this.area.bottom - this.area.top + 4);
    context.clip();
    this.#markLines(context);
    for (const series of this.series) this.#band(context, series);
    for (const series of this.series) this.#line(context, series.x, series.raw, series.colour, 1, 0.28);
    for (const series of this.series) this.#line(context, series.x, series.y, series.colour, series.width ?? (series.faint ? 1 : 1.6), series.faint ? 0.4 : 1, series.dashed);
    this.#cursors(context);
    context.restore();
    this.#markButtons();
    this.#readout();
  }

  x(value) {
    const {x0, x1} = this.range;
    return this.area.left + ((value - x0) / (x1 - x0 || 1)) * (this.area.right - this.area.left);
  }

  y(value) {
    const {y0, y1} = this.range;
    const share = this.log ? (Math.log10(value) - Math.log10(y0)) / (Math.log10(y1) - Math.log10(y0) || 1) : (value - y0) / (y1 - y0 || 1);
    return this.area.bottom - share * (this.area.bottom - this.area.top);
  }

  #colours() {
    const style = getComputedStyle(this.plot);
    const colour = (name) => style.getPropertyValue(name).trim();
    return {grid: colour("--grid"), text: colour("--muted"), strong: colour("--text"), alert: colour("--alert"), change: colour("--change"), font: style.fontFamily};
  }

  #usable(value) {
    return value !== null && value !== undefined && Number.isFinite(value) && (!this.log || value > 0);
  }

  #range() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    const wanted = this.options.xRange;
    for (const series of this.series) {
      for (let index = 0; index < series.x.length; index += 1) {
        const x = series.x[index];
        if (wanted && (x < wanted[0] || x > wanted[1])) continue;
        for (const values of [series.y, series.raw, series.low, series.high]) {
          const value = values?.[index];
          if (!this.#usable(value)) continue;
          x0 = Math.min(x0, x);
          x1 = Math.max(x1, x);
          y0 = Math.min(y0, value);
          y1 = Math.max(y1, value);
        }
      }
    }
    if (y0 > y1) return null;
    if (wanted) [x0, x1] = wanted;
    if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
    if (this.log) return y0 === y1 ? {x0, x1, y0: y0 / 2, y1: y1 * 2} : {x0, x1, y0: y0 / 1.08, y1: y1 * 1.08};
    const pad = y0 === y1 ? Math.abs(y0) * 0.1 || 1 : (y1 - y0) * 0.06;
    return {x0, x1, y0: y0 - pad, y1: y1 + pad};
  }

  #drawNote() {
    const text = this.note || (this.range ? "" : this.log ? "No positive values: switch the logarithmic scale off." : "No values yet.");
    this.noteLayer.hidden = !text;
    this.noteLayer.textContent = text;
    this.noteLayer.classList.toggle("corner", Boolean(this.range));
  }

  #axes(context) {
    const {left, right, top, bottom} = this.area;
    const {x0, x1, y0, y1} = this.range;
    context.font = `11px ${this.colours.font}`;
    context.lineWidth = 1;
    context.strokeStyle = this.colours.grid;
    context.fillStyle = this.colours.text;
    const most = Math.max(2, Math.floor((bottom - top) / LEAST_TICK_PIXELS.y));
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of this.log ? logTicks(y0, y1, most) : ticks(y0, y1, most)) {
      const y = Math.round(this.y(tick)) + 0.5;
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(right, y);
      context.stroke();
      context.fillText(compact(tick), left - 7, y);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const label = this.options.xLabel;
    const labelLeft = label ? right - context.measureText(label).width - 8 : right;
    const across = ticks(x0, x1, Math.max(2, Math.floor((right - left) / LEAST_TICK_PIXELS.x)));
    for (const tick of this.options.whole ? across.filter(Number.isInteger) : across) {
      const x = this.x(tick);
      const text = this.options.xFormat(tick);
      const half = context.measureText(text).width / 2;
      if (x - half < left - 12 || x + half > labelLeft) continue;
      context.fillText(text, x, bottom + 9);
    }
    context.textAlign = "right";
    context.fillText(label, right, bottom + 9);
    context.beginPath();
    context.moveTo(left, bottom + 0.5);
    context.lineTo(right, bottom + 0.5);
    context.stroke();
  }

  #band(context, {x, low, high, colour}) {
    if (!low || !high) return;
    context.save();
    context.globalAlpha = 0.16;
    context.fillStyle = colour;
    context.beginPath();
    const usable = x.map((_, index) => index).filter((index) => this.#usable(low[index]) && this.#usable(high[index]));
    for (const index of usable) context.lineTo(this.x(x[index]), this.y(high[index]));
    for (const index of usable.reverse()) context.lineTo(this.x(x[index]), this.y(low[index]));
    context.closePath();
    context.fill();
    context.restore();
  }

  #line(context, x, y, colour, width, opacity, dashed = false) {
    if (!y) return;
    context.save();
    context.globalAlpha = opacity;
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.setLineDash(dashed ? [5, 4] : []);
    context.beginPath();
    let points = 0;
    let last;
    for (let index = 0; index < x.length; index += 1) {
      if (!this.#usable(y[index])) continue;
      last = [this.x(x[index]), this.y(y[index])];
      if (points) context.lineTo(...last);
      else context.moveTo(...last);
      points += 1;
    }
    if (points > 1) context.stroke();
    else if (points === 1) {
      context.beginPath();
      context.arc(last[0], last[1], 3, 0, 2 * Math.PI);
      context.fill();
    }
    context.restore();
  }

  #markLines(context) {
    for (const mark of this.marks) {
      const x = Math.round(this.x(mark.x)) + 0.5;
      context.strokeStyle = this.colours[mark.kind] ?? this.colours.text;
      context.globalAlpha = 0.55;
      context.setLineDash([3, 3]);
      context.beginPath();
      context.moveTo(x, this.area.top);
      context.lineTo(x, this.area.bottom);
      context.stroke();
      context.setLineDash([]);
      context.globalAlpha = 1;
    }
  }

  #markButtons() {
    // Rebuilt only when marks differ, so that a focused one keeps its focus while a run goes on.
    const shown = this.marks.filter((mark) => mark.x >= this.range.x0 && mark.x <= this.range.x1);
    const key = JSON.stringify(shown);
    if (key !== this.markKey) {
      this.markKey = key;
      this.markLayer.replaceChildren(...shown.map((mark) => {
        const button = element("button", {type: "button", class: `mark ${mark.kind}`, "aria-label": [mark.title, mark.text, mark.tip].filter(Boolean).join(". ")}, mark.kind === "alert" ? "!" : "Δ");
        const open = () => { this.openMark = mark; this.openTop = button.offsetTop + button.offsetHeight + 5; this.#readout(); };
        const close = () => { this.openMark = null; this.#readout(); };
        for (const [event, call] of [["pointerenter", open], ["focus", open], ["pointerleave", close], ["blur", close]]) button.addEventListener(event, call);
        return button;
      }));
    }
    let previous = -Infinity;
    let stacked = 0;
    [...this.markLayer.children].forEach((button, index) => {
      const x = this.x(shown[index].x);
      stacked = x - previous < 16 ? (stacked + 1) % 5 : 0;
      previous = x;
      button.style.left = `${x}px`;
      button.style.top = `${this.area.top + stacked * 18}px`;
    });
  }

  #cursors(context) {
    if (this.pressed !== null && this.pressed !== undefined && this.hover !== null) {
      context.save();
      context.globalAlpha = 0.12;
      context.fillStyle = this.colours.strong;
      context.fillRect(this.x(this.pressed), this.area.top, this.x(this.hover) - this.x(this.pressed), this.area.bottom - this.area.top);
      context.restore();
    }
    for (const [x, style] of [[this.cursor, this.colours.strong], [this.hover, this.colours.text]]) {
      if (x === null || x === undefined) continue;
      const place = Math.round(this.x(x)) + 0.5;
      context.strokeStyle = style;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(place, this.area.top);
      context.lineTo(place, this.area.bottom);
      context.stroke();
    }
    if (this.hover === null) return;
    for (const {series, index} of this.#hits()) {
      context.fillStyle = series.colour;
      context.beginPath();
      context.arc(this.x(series.x[index]), this.y(series.y[index]), 3.5, 0, 2 * Math.PI);
      context.fill();
    }
  }

  /** What each series has nearest to the crosshair; one that began later or has ended before, or is in the background, is left out. */
  #hits() {
    const near = (this.range.x1 - this.range.x0) * 0.02;
    const front = this.series.filter((series) => !series.faint);
    return (front.length ? front : this.series)
      .map((series) => ({series, index: nearest(series.x, this.hover)}))
      .filter(({series, index}) => index >= 0 && this.#usable(series.y[index]) && this.hover >= series.x[0] - near && this.hover <= series.x.at(-1) + near)
      .map((hit) => ({...hit, distance: Math.abs(hit.series.x[hit.index] - this.hover), far: Math.abs(hit.series.x[hit.index] - this.hover) > near}));
  }

  #readout() {
    const mark = this.openMark;
    const rows = [];
    if (mark) {
      rows.push(element("div", {class: "tooltip-head"}, mark.title), element("div", {}, mark.text ?? ""), mark.tip ? element("div", {class: "tip"}, mark.tip) : "");
    } else if (this.hover !== null && this.range) {
      const hits = this.#hits();
      const place = (x) => (this.options.xFormat === compact ? precise(x) : this.options.xFormat(x));
      const closest = hits.reduce((best, hit) => (best && best.distance <= hit.distance ? best : hit), null);
      if (hits.length) rows.push(element("div", {class: "tooltip-head"}, `${place(closest.series.x[closest.index])} ${this.options.xLabel}`));
      for (const {series, index, far} of hits) {
        const dot = element("span", {class: "dot"});
        dot.style.background = series.colour;
        const span = series.low && this.#usable(series.low[index]) ? ` ${series.span ?? ""} [${precise(series.low[index])}, ${precise(series.high[index])}]` : series.raw ? ` (raw ${precise(series.raw[index])})` : "";
        rows.push(element("div", {class: "tooltip-row"}, dot, element("span", {class: "tooltip-label"}, series.label), element("b", {}, precise(series.y[index])), span, far ? element("span", {class: "muted"}, ` at ${place(series.x[index])}`) : null));
      }
    }
    this.tooltip.hidden = !rows.length;
    if (!rows.length) return;
    this.tooltip.replaceChildren(...rows);
    const x = this.x(mark ? mark.x : this.hover);
    const room = this.plot.clientWidth;
    const width = this.tooltip.offsetWidth;
    this.tooltip.style.top = `${mark ? this.openTop : 14}px`;
    this.tooltip.style.left = `${Math.max(0, Math.min(room - width, x + 14 + width > room ? x - width - 14 : x + 14))}px`;
  }

  #at(event) {
    if (!this.range) return null;
    const place = event.clientX - this.plot.getBoundingClientRect().left;
    const share = (place - this.area.left) / (this.area.right - this.area.left);
    return share < -0.02 || share > 1.02 ? null : this.range.x0 + Math.max(0, Math.min(1, share)) * (this.range.x1 - this.range.x0);
  }

  #moved(event) {
    this.#setHover(this.#at(event));
  }

  #setHover(x) {
    if (x === this.hover) return;
    this.showAt(x);
    this.options.onHover?.(x);
  }

  #left(event) {
    this.pressed = null;
    // A finger leaves as it is lifted: what it has pointed at stays until another place is touched.
    if (event.pointerType !== "touch") this.#setHover(null);
  }

  #pressed(event) {
    if (event.pointerType === "touch") this.#moved(event);
    if (this.options.onZoom && event.button === 0 && event.pointerType === "mouse" && !event.target.closest(".mark")) this.pressed = this.#at(event);
  }

  #released(event) {
    const [from, to] = [this.pressed, this.#at(event)];
    this.pressed = null;
    if (from === null || from === undefined || to === null || !this.range) return;
    if (Math.abs(this.x(to) - this.x(from)) > 8) this.options.onZoom(Math.min(from, to), Math.max(from, to));
  }

  #picked(event) {
    const x = this.#at(event);
    if (x !== null && !event.target.closest(".mark")) this.options.onPick?.(x);
  }

  #key(event) {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    const axis = this.series.reduce((longest, series) => (series.x.length > longest.length ? series.x : longest), []);
    if (!step || !axis.length || event.target !== this.plot) return;
    event.preventDefault();
    event.stopPropagation();
    const place = this.hover === null ? (step > 0 ? 0 : axis.length - 1) : nearest(axis, this.hover) + step;
    const x = axis[Math.max(0, Math.min(axis.length - 1, place))];
    this.#setHover(x);
    if (this.options.onPick) this.options.onPick(x);
  }
}

/** The title of a chart; where it has several lines, which is which. */
export function titled(title, series) {
  const keys = series.length < 2 ? [] : series.map(({label, colour, dashed}) => {
    const stroke = element("i", {class: dashed ? "stroke dashed" : "stroke"});
    stroke.style.borderColor = colour;
    return element("span", {class: "key"}, stroke, label);
  });
  return element("span", {class: "chart-caption"}, title, ...keys);
}

/** A tiny line without axes, as SVG: a sparkline in a table. */
export function sparkline(values, {width = 110, height = 26, label = ""} = {}) {
  const usable = values.filter((value) => value !== null && Number.isFinite(value));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "sparkline");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label || "no curve yet");
  if (usable.length < 2) return svg;
  const low = Math.min(...usable);
  const high = Math.max(...usable);
  const points = usable.map((value, index) => `${((index / (usable.length - 1)) * (width - 4) + 2).toFixed(1)},${(height - 3 - ((value - low) / (high - low || 1)) * (height - 6)).toFixed(1)}`);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.join(" "));
  svg.append(line);
  return svg;
}
