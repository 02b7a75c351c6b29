// Pictures of what an agent has learned, drawn on canvases: grids with arrows, planes, tables. They know no environment, only numbers and labels.

import {compact, element, precise} from "./dom.js";

const SCALE = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];
const DIRECTIONS = {left: [-1, 0], right: [1, 0], up: [0, -1], down: [0, 1], west: [-1, 0], east: [1, 0], north: [0, -1], south: [0, 1]};
const GROUNDS = {H: "hole", G: "goal", S: "start", C: "cliff"};
const LAST_FIELDS = ["H", "G", "C"];
const MOST_HEIGHT = 420;
const PLANE_LEFT = 62;
const PLANE_RIGHT = 4;
const LEAST_SHOWN = 0.04;

/** A share of 0..1 as [red, green, blue] of the viridis scale. */
export function viridis(share) {
  const place = Math.max(0, Math.min(1, share)) * (SCALE.length - 1);
  const low = Math.min(SCALE.length - 2, Math.floor(place));
  return SCALE[low].map((part, index) => Math.round(part + (SCALE[low + 1][index] - part) * (place - low)));
}

function rgb(parts) { return `rgb(${parts.join(" ")})`; }

function inkOn([red, green, blue]) { return red * 0.299 + green * 0.587 + blue * 0.114 > 140 ? "#10151c" : "#ffffff"; }

/** The smallest and largest finite number of a list. */
export function extent(numbers) {
  let [low, high] = [Infinity, -Infinity];
  for (const number of numbers) {
    if (number === null || !Number.isFinite(number)) continue;
    low = Math.min(low, number);
    high = Math.max(high, number);
  }
  return low > high ? [0, 1] : [low, high];
}

/** A canvas that is sharp on any screen; `paint(context)` works in CSS pixels. */
export function sharpCanvas(width, height, label, paint) {
  const scale = window.devicePixelRatio || 1;
  const canvas = element("canvas", {role: "img", "aria-label": label});
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  paint(context);
  return canvas;
}

export function legend(title, [low, high]) {
  const bar = element("canvas", {"aria-hidden": "true"});
  bar.width = 120;
  bar.height = 1;
  const context = bar.getContext("2d");
  for (let x = 0; x < 120; x += 1) {
    context.fillStyle = rgb(viridis(x / 119));
    context.fillRect(x, 0, 1, 1);
  }
  return element("div", {class: "legend"}, element("span", {}, title), element("span", {}, compact(Number(low.toPrecision(4)))), bar, element("span", {}, compact(Number(high.toPrecision(4)))));
}

/** A place of the pointer on a canvas, as shares of its width and height. */
function shareAt(event) {
  const box = event.currentTarget.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}

function label(map, action) { return map.labels[action] ?? String(action); }

function stateText(map, state, name) {
  const parts = [name, ground(map, state)];
  if (map.values) parts.push(`value ${precise(map.values[state])}`);
  const row = map.q?.[state] ?? map.policy?.[state];
  if (row) parts.push(row.map((value, action) => `${label(map, action)} ${map.q ? precise(value) : `${(value * 100).toFixed(1)}%`}`).join(", "));
  if (map.visits) parts.push(`learned ${map.visits[state].reduce((sum, count) => sum + count, 0).toLocaleString("en-US")} times`);
  return parts.filter(Boolean).join(" · ");
}

/** A world of fields: colour is the value, arrows the policy. Taxi's walls, passenger and destination where the map has them. */
export function gridMap(map, width, colours) {
  const cell = Math.max(22, Math.min(104, Math.floor(width / map.columns), Math.floor(MOST_HEIGHT / map.rows)));
  const range = extent((map.values ?? []).filter((_, state) => !isLast(map, state)));
  const readout = element("p", {class: "readout", role: "status"}, "Point at a field to read its numbers.");
  const canvas = sharpCanvas(cell * map.columns, cell * map.rows, "Map of values and actions", (context) => {
    for (let state = 0; state < map.rows * map.columns; state += 1) field(context, map, state, cell, range, colours);
    context.strokeStyle = colours.wall;
    context.lineWidth = 4;
    for (const [row, column] of map.walls ?? []) {
      context.beginPath();
      context.moveTo((column + 1) * cell, row * cell);
      context.lineTo((column + 1) * cell, (row + 1) * cell);
      context.stroke();
    }
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = shareAt(event);
    const [row, column] = [Math.min(map.rows - 1, Math.floor(y * map.rows)), Math.min(map.columns - 1, Math.floor(x * map.columns))];
    readout.textContent = stateText(map, row * map.columns + column, `row ${row}, column ${column}`);
  });
  return element("div", {}, element("div", {class: "map"}, canvas), legend("value", range), readout);
}

/** What a field is, where letters are grounds; in Taxi's town they are names of places. */
function ground(map, state) { return map.kind === "grid" ? GROUNDS[map.letters[state]] : undefined; }

function isLast(map, state) { return map.kind === "grid" && LAST_FIELDS.includes(map.letters[state]); }

function field(context, map, state, cell, range, colours) {
  const [column, row] = [state % map.columns, Math.floor(state / map.columns)];
  const [x, y] = [column * cell, row * cell];
  const letter = map.letters[state];
  const ends = isLast(map, state);
  const value = map.values?.[state];
  const unseen = map.visits && map.visits[state].every((count) => count === 0);
  const parts = value === null || value === undefined ? [128, 128, 128] : viridis((value - range[0]) / (range[1] - range[0] || 1));
  context.fillStyle = ends ? colours.ground[letter] : unseen ? colours.unseen : rgb(parts);
  context.fillRect(x + 1, y + 1, cell - 2, cell - 2);
  const ink = ends ? colours.groundInk : unseen ? colours.text : inkOn(parts);
  context.fillStyle = ink;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const size = Math.max(9, Math.min(13, cell / 6));
  context.font = `600 ${size}px ${colours.font}`;
  const sign = ground(map, state) ?? (letter === "F" ? "" : letter ?? "");
  if (ends) {
    if (cell >= 34) context.fillText(sign, x + cell / 2, y + cell / 2);
    return;
  }
  if (sign && cell >= 34) context.fillText(sign, x + cell / 2, y + size);
  markers(context, map, state, x, y, cell, size, colours);
  arrows(context, map, state, x + cell / 2, y + cell * 0.45, cell * 0.27, ink, colours);
  if (cell >= 44 && value !== null && value !== undefined) {
    context.font = `${size}px ${colours.font}`;
    context.fillStyle = ink;
    context.fillText(compact(Number(value.toPrecision(3))), x + cell / 2, y + cell - size * 0.9);
  }
}

function markers(context, map, state, x, y, cell, size, colours) {
  const places = ["R", "G", "Y", "B"].map((name) => map.letters.indexOf(name));
  if (map.passenger === undefined) return;
  const tags = [[map.passenger < 4 && places[map.passenger] === state, "P", x + size], [places[map.destination] === state, "D", x + cell - size]];
  for (const [here, text, centre] of tags) {
    if (!here) continue;
    context.beginPath();
    context.arc(centre, y + size, size * 0.75, 0, 2 * Math.PI);
    context.fillStyle = colours.tag;
    context.fill();
    context.fillStyle = colours.tagInk;
    context.fillText(text, centre, y + size + 0.5);
  }
}

/** The likely actions of a field: arrows for directions, words for others, one below another. `length` is 0.27 of the field's side. */
function arrows(context, map, state, x, y, length, ink, colours) {
  const policy = map.policy?.[state] ?? [];
  context.strokeStyle = context.fillStyle = ink;
  const words = [];
  policy.forEach((probability, action) => {
    if (probability < LEAST_SHOWN) return;
    const direction = DIRECTIONS[label(map, action).toLowerCase()];
    if (!direction) {
      if (probability >= 0.3) words.push(label(map, action));
      return;
    }
    const [dx, dy] = direction.map((part) => part * length * (0.35 + 0.65 * probability));
    // One that stands alone is centred; several start from the middle.
    const back = probability > 0.9 ? 0.5 : 0;
    const [fx, fy] = [x - dx * back, y - dy * back];
    context.globalAlpha = 0.3 + 0.7 * probability;
    context.lineWidth = 1 + 2 * probability;
    context.beginPath();
    context.moveTo(fx, fy);
    context.lineTo(fx + dx, fy + dy);
    context.stroke();
    const [hx, hy, head] = [fx + dx, fy + dy, 3 + 3 * probability];
    context.beginPath();
    context.moveTo(hx + Math.sign(dx) * head, hy + Math.sign(dy) * head);
    context.lineTo(hx + Math.sign(dy) * head * 0.75, hy + Math.sign(dx) * head * 0.75);
    context.lineTo(hx - Math.sign(dy) * head * 0.75, hy - Math.sign(dx) * head * 0.75);
    context.fill();
  });
  context.globalAlpha = 1;
  const size = Math.max(9, length * 0.5);
  context.font = `600 ${size}px ${colours.font}`;
  words.forEach((word, line) => context.fillText(word, x, y + (line - (words.length - 1) / 2) * size, length * 3.5));
}

/** A plane through the state: the value as a surface, the likeliest action as a map, and the way of an episode over both. */
export function planeMap(map, width, colours, path) {
  const margin = PLANE_LEFT + PLANE_RIGHT;
  const room = Math.max(150, Math.min(330, width >= 560 ? Math.floor(width / 2) - margin - 8 : width - margin));
  const readout = element("p", {class: "readout", role: "status"}, heldText(map));
  const pictures = [];
  const range = map.values ? extent(map.values.flat()) : null;
  if (range) pictures.push(["Value", (row, column) => viridis((map.values[row][column] - range[0]) / (range[1] - range[0] || 1))]);
  const means = map.means ? extent(map.means.flat()) : null;
  if (map.actions) pictures.push(["Likeliest action", (row, column) => fade(colours.series[map.actions[row][column] % colours.series.length], map.sureness[row][column], colours.surface)]);
  if (means) pictures.push(["Mean of the action", (row, column) => viridis((map.means[row][column] - means[0]) / (means[1] - means[0] || 1))]);
  const figures = pictures.map(([title, colour]) => {
    const canvas = sharpCanvas(room + margin, room + 36, `${title} over ${map.names[map.x]} and ${map.names[map.y]}`, (context) => plane(context, map, room, colour, colours, path));
    canvas.addEventListener("pointermove", (event) => readPlane(event, map, room, readout));
    canvas.addEventListener("pointerleave", () => { readout.textContent = heldText(map); });
    return element("figure", {}, element("figcaption", {}, title), canvas);
  });
  const swatches = map.actions ? [...new Set(map.actions.flat())].sort((a, b) => a - b).map((action) => {
    const patch = element("i");
    patch.style.background = colours.series[action % colours.series.length];
    return element("span", {class: "swatch"}, patch, label(map, action));
  }) : [];
  return element("div", {}, element("div", {class: "map"}, figures), element("div", {class: "legend"}, swatches, path ? element("span", {}, "white line: the episode") : null), range ? legend("value", range) : null, means ? legend("mean", means) : null, readout);
}

function heldText(map) {
  const held = map.names.flatMap((name, place) => (place === map.x || place === map.y ? [] : [`${name} ${precise(map.held[place])}`]));
  return held.length ? `Held: ${held.slice(0, 12).join(", ")}${held.length > 12 ? ", …" : ""}` : "Point at the map to read its numbers.";
}

function fade(colour, sureness, surface) {
  const [front, back] = [colour, surface].map((text) => [1, 3, 5].map((place) => parseInt(text.slice(place, place + 2), 16)));
  return front.map((part, index) => Math.round(back[index] + (part - back[index]) * Math.max(0.2, sureness)));
}

function plane(context, map, room, colour, colours, path) {
  const left = PLANE_LEFT;
  const image = new ImageData(map.points, map.points);
  for (let row = 0; row < map.points; row += 1) {
    for (let column = 0; column < map.points; column += 1) image.data.set([...colour(row, column), 255], ((map.points - 1 - row) * map.points + column) * 4);
  }
  const small = element("canvas");
  small.width = small.height = map.points;
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, left, 2, room, room);
  context.fillStyle = colours.muted;
  context.font = `11px ${colours.font}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const share of [0, 0.5, 1]) context.fillText(compact(Number((map.y_range[0] + (map.y_range[1] - map.y_range[0]) * share).toPrecision(3))), left - 5, 2 + room * (1 - share) + (share === 1 ? 6 : share === 0 ? -6 : 0));
  context.textBaseline = "top";
  for (const share of [0, 0.5, 1]) {
    context.textAlign = ["left", "center", "right"][share * 2];
    context.fillText(compact(Number((map.x_range[0] + (map.x_range[1] - map.x_range[0]) * share).toPrecision(3))), left + room * share, room + 7);
  }
  context.textAlign = "center";
  context.fillText(map.names[map.x], left + room / 2, room + 21);
  context.save();
  context.translate(10, 2 + room / 2);
  context.rotate(-Math.PI / 2);
  context.textBaseline = "middle";
  context.fillText(map.names[map.y], 0, 0);
  context.restore();
  if (path) wayOver(context, map, room, left, path);
}

function wayOver(context, map, room, left, path) {
  const place = (value, [low, high]) => (value - low) / (high - low || 1);
  context.save();
  context.beginPath();
  context.rect(left, 2, room, room);
  context.clip();
  for (const [style, width] of [["rgb(0 0 0 / 55%)", 3], ["#ffffff", 1.4]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.beginPath();
    path.x.forEach((x, row) => {
      const point = [left + place(x, map.x_range) * room, 2 + (1 - place(path.y[row], map.y_range)) * room];
      if (path.first[row]) context.moveTo(...point);
      else context.lineTo(...point);
    });
    context.stroke();
  }
  context.restore();
}

function readPlane(event, map, room, readout) {
  const box = event.currentTarget.getBoundingClientRect();
  const scale = (room + PLANE_LEFT + PLANE_RIGHT) / box.width;
  const [x, y] = [((event.clientX - box.left) * scale - PLANE_LEFT) / room, 1 - ((event.clientY - box.top) * scale - 2) / room];
  if (x < 0 || x > 1 || y < 0 || y > 1) return;
  const [column, row] = [x, y].map((share) => Math.min(map.points - 1, Math.round(share * (map.points - 1))));
  const at = ([low, high], place) => low + ((high - low) * place) / (map.points - 1);
  const parts = [`${map.names[map.x]} ${precise(at(map.x_range, column))}`, `${map.names[map.y]} ${precise(at(map.y_range, row))}`];
  if (map.values) parts.push(`value ${precise(map.values[row][column])}`);
  if (map.actions) parts.push(`${label(map, map.actions[row][column])} with ${(map.sureness[row][column] * 100).toFixed(1)}%`);
  if (map.means) parts.push(`mean ${precise(map.means[row][column])}`);
  readout.textContent = parts.join(" · ");
}

/** Every state by every action. */
export function tableMap(map, width, colours) {
  const [rows, columns] = [map.cells.length, map.cells[0]?.length ?? 0];
  const lettered = rows <= 80;
  const height = lettered ? 20 : Math.max(2, Math.min(8, Math.floor(1600 / rows)));
  const head = 40;
  const cell = Math.max(26, Math.min(110, Math.floor((width - head - 18) / columns)));
  const seen = map.cells.map((row, state) => row.map((value, action) => (map.visits && !map.visits[state][action] ? null : value)));
  const range = extent(seen.flat());
  const readout = element("p", {class: "readout", role: "status"}, map.visits ? "Empty: never learned. Point at a cell to read it." : "Point at a cell to read it.");
  const title = sharpCanvas(head + cell * columns, 18, "Actions", (context) => {
    context.fillStyle = colours.muted;
    context.font = `11px ${colours.font}`;
    context.textAlign = "center";
    for (let action = 0; action < columns; action += 1) context.fillText(label(map, action), head + (action + 0.5) * cell, 12, cell - 2);
  });
  const canvas = sharpCanvas(head + cell * columns, rows * height, `${map.what} of every state and action`, (context) => {
    context.font = `11px ${colours.font}`;
    context.textBaseline = "middle";
    for (let state = 0; state < rows; state += 1) {
      const best = Math.max(...seen[state].filter((value) => value !== null));
      for (let action = 0; action < columns; action += 1) {
        const value = seen[state][action];
        if (value === null) continue;
        const parts = viridis((value - range[0]) / (range[1] - range[0] || 1));
        context.fillStyle = rgb(parts);
        context.fillRect(head + action * cell, state * height, cell - 1, height - (lettered ? 1 : 0));
        if (!lettered) continue;
        context.fillStyle = inkOn(parts);
        context.textAlign = "center";
        context.font = `${value === best ? "700" : "400"} 11px ${colours.font}`;
        context.fillText(compact(Number(value.toPrecision(3))), head + (action + 0.5) * cell, (state + 0.5) * height, cell - 4);
      }
      if (lettered || state % Math.ceil(rows / 20) === 0) {
        context.fillStyle = colours.muted;
        context.textAlign = "right";
        context.font = `11px ${colours.font}`;
        context.fillText(String(state), head - 6, (state + 0.5) * height);
      }
    }
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = shareAt(event);
    const state = Math.min(rows - 1, Math.floor(y * rows));
    const action = Math.floor((x * (head + cell * columns) - head) / cell);
    const value = map.cells[state][action];
    if (value !== undefined) readout.textContent = `state ${state} · ${label(map, action)} · ${map.what} ${precise(value)}${map.visits ? ` · learned ${map.visits[state][action].toLocaleString("en-US")} times` : ""}`;
  });
  return element("div", {}, element("div", {class: "map"}, element("div", {}, title, element("div", {class: "tall"}, canvas))), legend(map.what, range), readout);
}
