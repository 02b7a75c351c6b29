// Small tools that every tab uses: elements, numbers for people, empty states.

/** An element: element("button", {class: "quiet", onclick: go, "aria-label": "Go"}, "text", child). */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

/** An empty state: what is missing and what to do about it, with a command to copy where one helps. */
export function emptyState(title, text, command) {
  return element("div", {class: "empty"}, element("h2", {}, title), element("p", {}, text), command ? element("code", {class: "command"}, command) : null);
}

/** What a tab shows while no run is selected: `text` says how to pick one, if there is any. */
export function nothingSelected(app, text) {
  if (app.loaded && !app.runs.length) return emptyState("No runs yet", `There is none in ${app.runsDirectory}. Train one; it appears here while it learns.`, "gymlab train CartPole-v1:ppo");
  return emptyState("No run selected", text);
}

/** A number in few characters: 1,234 · 12.3k · 0.0042 · 1.2e-7. */
export function compact(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  const size = Math.abs(value);
  if (size >= 1e9) return trimmed(value / 1e9, 2) + "G";
  if (size >= 1e6) return trimmed(value / 1e6, 2) + "M";
  if (size >= 1e4) return trimmed(value / 1e3, 1) + "k";
  if (size >= 1000 || Number.isInteger(value)) return value.toLocaleString("en-US", {maximumFractionDigits: 1});
  if (size >= 10) return trimmed(value, 1);
  if (size >= 1) return trimmed(value, 3);
  if (size >= 0.001 || size === 0) return trimmed(value, 4);
  return value.toExponential(2).replace(/\.?0+e/, "e");
}

/** A number with six significant digits, as it would be read off an instrument. */
export function precise(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(4);
  return Number(value.toPrecision(6)).toLocaleString("en-US", {maximumFractionDigits: 10});
}

function trimmed(value, digits) {
  return String(Number(value.toFixed(digits)));
}

/** Seconds as a length of time: 8.4 s, 2 min 05 s, 1 h 02 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 59.95) return `${seconds < 10 ? trimmed(seconds, 1) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
}

/** How long ago a moment (seconds since 1970) was: 5 s ago, 3 min ago, 2 d ago. */
export function ago(moment, now = Date.now() / 1000) {
  if (moment === null || moment === undefined) return "–";
  const past = Math.max(0, now - moment);
  if (past < 60) return `${Math.floor(past)} s ago`;
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
  return `${Math.floor(past / 86400)} d ago`;
}

/** Give the person a file that was made on the page. */
export function saveFile(name, text, type = "text/csv") {
  const address = URL.createObjectURL(new Blob([text], {type}));
  element("a", {href: address, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Call after the last of several quick events. */
export function debounced(call, milliseconds = 150) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), milliseconds);
  };
}
