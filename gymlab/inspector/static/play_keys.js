// Keys for a game, from the keyboard and from buttons on the page: those that are down, and those that were tapped since somebody asked.
//
//   const keys = new GameKeys(panel, {onPress: (when) => ...});
//   keys.load([{keys: ["left"], text: "push left"}]);
//   keys.take();      // ["left"]: down now, or pressed since the last time

import {element} from "./dom.js";

const NAMES = {ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down", " ": "space", Enter: "return", Shift: "left shift", Tab: "tab"};
const SIGNS = {left: "←", right: "→", up: "↑", down: "↓", space: "space", return: "enter", "left shift": "shift"};

/** What the games call a key of the browser. */
export function keyName(event) {
  return NAMES[event.key] ?? (event.key.length === 1 ? event.key.toLowerCase() : "");
}

export class GameKeys {
  constructor(panel, {onPress}) {
    this.panel = panel;
    this.onPress = onPress;
    this.known = new Set();
    this.held = new Set();
    this.tapped = new Set();
    this.buttons = new Map();
    this.root = element("div", {class: "pad", role: "group", "aria-label": "Actions"});
    document.addEventListener("keydown", (event) => this.#down(event));
    document.addEventListener("keyup", (event) => this.#up(keyName(event)));
    window.addEventListener("blur", () => this.release());
  }

  /** Which keys mean something, with a button for each meaning. */
  load(buttons) {
    this.release();
    this.tapped.clear();
    this.known = new Set(buttons.flatMap(({keys}) => keys));
    this.buttons = new Map();
    this.root.replaceChildren(...buttons.map(({keys, text}) => {
      const button = element("button", {type: "button", class: "pad-button", "data-key": keys[0]}, element("span", {}, text), element("kbd", {}, keys.map((key) => SIGNS[key] ?? key).join(" ")));
      button.addEventListener("pointerdown", (event) => {
        // A finger that slides off still lets go, and the page does not scroll under it.
        event.preventDefault();
        button.setPointerCapture(event.pointerId);
        this.#press(keys[0], event.timeStamp);
      });
      for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) button.addEventListener(kind, () => this.#up(keys[0]));
      // With the keyboard on the button itself, or a screen reader: a click is a tap.
      button.addEventListener("click", (event) => { if (event.detail === 0) { this.#press(keys[0], event.timeStamp); this.#up(keys[0]); } });
      for (const key of keys) this.buttons.set(key, button);
      return button;
    }));
    this.root.hidden = !buttons.length;
  }

  take() {
    const found = [...new Set([...this.held, ...this.tapped])];
    this.tapped.clear();
    return found;
  }

  get waiting() { return this.held.size + this.tapped.size > 0; }

  release() {
    for (const key of [...this.held]) this.#up(key);
  }

  #press(key, when) {
    this.held.add(key);
    this.tapped.add(key);
    this.buttons.get(key)?.classList.add("down");
    this.onPress(when);
  }

  #up(key) {
    this.held.delete(key);
    this.buttons.get(key)?.classList.remove("down");
  }

  #down(event) {
    const key = keyName(event);
    if (!this.panel.offsetParent || !this.known.has(key) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.('input, select, textarea, [role="tab"]')) return;
    // A focused button is pressed with space or enter, unless the game has that key for itself.
    event.preventDefault();
    if (!event.repeat) this.#press(key, event.timeStamp);
  }
}
