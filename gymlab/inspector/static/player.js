// Frames of an episode on a canvas, with the means to move through them: play, step, slider, speed, zoom, views.
//
//   const player = new Player({onMove: (position) => ...});
//   player.load(trace, {positions, episodeStarts});
//   player.go(12);

import {element} from "./dom.js";
import {segments} from "./rollout.js";

const AHEAD = 48;
const AT_ONCE = 6;
const KEPT = 400;
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const FIT_HEIGHT = 336;
const ICONS = {
  play: "M5 3l9 5.5L5 14z", pause: "M4 3h3.2v11H4zM9.8 3H13v11H9.8z", back: "M11 3v11L3.5 8.5z", forward: "M6 3v11l7.5-5.5z",
  first: "M3 3h2v11H3zM14 3v11L6.5 8.5z", last: "M12 3h2v11h-2zM3 3v11l7.5-5.5z",
};
const VIEW_TITLES = {raw: "Raw", processed: "Processed", stacked: "Stacked"};

function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", "0 0 17 17");
  picture.setAttribute("class", "glyph");
  picture.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", ICONS[name]);
  picture.append(path);
  return picture;
}

/** Pictures by address, loaded ahead, decoded, and forgotten when many newer ones have come. */
class Pictures {
  constructor() {
    this.kept = new Map();
    this.loading = new Map();
  }

  get(address) { return this.kept.get(address); }

  load(address) {
    if (this.kept.has(address)) return Promise.resolve(this.kept.get(address));
    if (this.loading.has(address)) return this.loading.get(address);
    const image = new Image();
    image.src = address;
    const promise = image.decode().then(() => {
      this.kept.set(address, image);
      while (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
      return image;
    }).finally(() => this.loading.delete(address));
    this.loading.set(address, promise);
    return promise;
  }
}

export class Player {
  constructor({onMove}) {
    this.onMove = onMove;
    this.position = 0;
    this.count = 0;
    this.view = "raw";
    this.speed = 1;
    this.pictures = new Pictures();
    this.canvas = element("canvas", {role: "img", "aria-label": "Frame", class: "frame"});
    this.badge = element("div", {class: "frame-badge", hidden: true});
    this.note = element("div", {class: "frame-note", hidden: true});
    this.stage = element("div", {class: "stage", tabindex: "0", "aria-label": "Frame; arrow keys step"}, this.canvas, this.badge, this.note);
    this.views = element("div", {});
    this.zoom = element("select", {"aria-label": "Zoom", onchange: () => this.#size()}, [["fit", "Fit"], ["1", "1×"], ["2", "2×"], ["4", "4×"], ["8", "8×"]].map(([value, text]) => element("option", {value}, text)));
    const button = (glyph, label, action) => element("button", {type: "button", class: "icon", "aria-label": label, title: label, onclick: action}, icon(glyph));
    this.playButton = button("play", "Play (space)", () => this.toggle());
    this.slider = element("input", {type: "range", min: 0, max: 0, value: 0, "aria-label": "Position", oninput: () => this.go(Number(this.slider.value))});
    this.rate = element("select", {"aria-label": "Speed", onchange: () => { this.speed = Number(this.rate.value); }}, SPEEDS.map((speed) => element("option", {value: speed, selected: speed === 1}, `${speed}×`)));
    this.root = element("div", {class: "player"},
      element("div", {class: "toolbar"}, this.views, element("label", {class: "push"}, "Zoom", this.zoom)),
      this.stage,
      element("div", {class: "transport"}, button("first", "Previous episode (arrow up)", () => this.episode(-1)), button("back", "Step back (arrow left)", () => this.step(-1)), this.playButton, button("forward", "Step forward (arrow right)", () => this.step(1)), button("last", "Next episode (arrow down)", () => this.episode(1)), this.slider, this.rate));
    new ResizeObserver(() => this.#size()).observe(this.stage);
  }

  /** Show another trace. `starts` are the positions at which episodes begin, `ends(position)` says how the episode has ended there, if it has. */
  load(trace, {count, starts, ends}) {
    this.pause();
    Object.assign(this, {trace, count, starts, ends, pictures: new Pictures()});
    this.view = trace.views.includes(this.view) ? this.view : trace.views[0] ?? "raw";
    const titles = trace.views.map((view) => [view, view === "stacked" && trace.stack > 1 ? `Stacked (${trace.stack})` : VIEW_TITLES[view]]);
    this.views.replaceChildren(titles.length > 1 ? segments("View", titles, this.view, (view) => { this.view = view; this.draw(); }) : "");
    this.slider.max = Math.max(0, count - 1);
    this.note.hidden = trace.views.length > 0;
    this.note.textContent = trace.note || "This environment draws no pictures.";
    this.canvas.hidden = !trace.views.length;
    this.go(0);
  }

  /** A picture while a rollout goes on. */
  async preview(trace) {
    if (!trace.frames) return;
    const image = await this.pictures.load(`/api/traces/${trace.id}/frames/${trace.frames - 1}`).catch(() => null);
    if (image && trace.id !== this.trace?.id) this.#paint(image);
  }

  address(position) { return `/api/traces/${this.trace.id}/frames/${position}?view=${this.view}`; }

  go(position) {
    this.position = Math.max(0, Math.min(this.count - 1, position));
    this.slider.value = this.position;
    this.draw();
    this.onMove(this.position);
  }

  step(by) {
    this.pause();
    this.go(this.position + by);
  }

  episode(by) {
    this.pause();
    const now = this.starts.findLastIndex((start) => start <= this.position);
    const back = by < 0 && this.position > this.starts[now] ? 0 : by;
    this.go(this.starts[Math.max(0, Math.min(this.starts.length - 1, now + back))] ?? 0);
  }

  toggle() {
    if (this.timer) this.pause();
    else this.play();
  }

  play() {
    if (!this.count) return;
    if (this.position === this.count - 1) this.go(0);
    this.#playing(true);
    let due = performance.now();
    const tick = (now) => {
      if (!this.timer) return;
      const interval = 1000 / (this.trace.fps * this.speed);
      let by = 0;
      // A frame that has not come yet is waited for: the picture stands still instead of flickering.
      while (due + interval <= now && by < 8 && this.#ready(this.position + by + 1)) {
        due += interval;
        by += 1;
      }
      if (now - due > 500) due = now;
      if (by) this.go(this.position + by);
      if (this.position >= this.count - 1) this.pause();
      else this.timer = requestAnimationFrame(tick);
    };
    this.timer = requestAnimationFrame(tick);
  }

  pause() {
    cancelAnimationFrame(this.timer);
    this.timer = null;
    this.#playing(false);
  }

  #playing(on) {
    this.playButton.replaceChildren(icon(on ? "pause" : "play"));
    this.playButton.setAttribute("aria-label", on ? "Pause (space)" : "Play (space)");
    this.playButton.title = on ? "Pause (space)" : "Play (space)";
  }

  #ready(position) {
    return position < this.count && (!this.trace.views.length || this.pictures.get(this.address(position)) !== undefined);
  }

  /** Show the picture of the present position, and fetch those after it. */
  async draw() {
    const end = this.ends(this.position);
    this.badge.hidden = !end;
    this.badge.textContent = end ?? "";
    this.canvas.setAttribute("aria-label", `Frame ${this.position + 1} of ${this.count}`);
    if (!this.trace.views.length) return;
    const address = this.address(this.position);
    const image = this.pictures.get(address) ?? await this.pictures.load(address).catch(() => null);
    if (image && address === this.address(this.position)) this.#paint(image);
    this.#ahead();
  }

  #ahead() {
    for (let next = this.position + 1; next <= this.position + AHEAD && next < this.count; next += 1) {
      if (this.pictures.loading.size >= AT_ONCE) return;
      const address = this.address(next);
      if (this.pictures.get(address) || this.pictures.loading.has(address)) continue;
      this.pictures.load(address).then(() => this.#ahead(), () => {});
    }
  }

  #paint(image) {
    const {canvas} = this;
    if (canvas.width !== image.naturalWidth || canvas.height !== image.naturalHeight) {
      canvas.width = image.naturalWidth;
      canvas.height = image.naturalHeight;
      this.#size();
    }
    canvas.hidden = false;
    canvas.getContext("2d").drawImage(image, 0, 0);
  }

  #size() {
    const {width, height} = this.canvas;
    const room = this.stage.clientWidth - 2;
    if (!room || !width) return;
    const fitting = Math.min(room / width, FIT_HEIGHT / height);
    const factor = this.zoom.value === "fit" ? fitting : Number(this.zoom.value);
    this.canvas.style.width = `${Math.round(width * factor)}px`;
    this.canvas.style.height = `${Math.round(height * factor)}px`;
    this.canvas.classList.toggle("pixels", factor >= 2);
  }
}

/** Keys of a player while its tab is shown: arrows step and change the episode, space plays. Returns the listener's removal. */
export function playerKeys(player, panel) {
  const moves = {ArrowLeft: () => player.step(-1), ArrowRight: () => player.step(1), ArrowUp: () => player.episode(-1), ArrowDown: () => player.episode(1), " ": () => player.toggle(), Home: () => player.go(0), End: () => player.go(player.count - 1)};
  document.addEventListener("keydown", (event) => {
    if (!panel.offsetParent || !player.count || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const {target} = event;
    const move = moves[event.key];
    const isSlider = target === player.slider;
    if (!move || target.closest?.('select, [role="tab"], textarea') || (target.matches?.("input") && !isSlider)) return;
    if (event.key === " " && target.closest?.("button, a")) return;
    event.preventDefault();
    move();
  });
}
