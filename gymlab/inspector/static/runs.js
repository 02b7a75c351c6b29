import {emptyState} from "./dom.js";

export const id = "runs";
export const title = "Runs";

export function mount(root, app) {
  app.onRuns(() => root.replaceChildren(...app.runs.map((run) => { const b = document.createElement("button"); b.textContent = run.id; b.onclick = () => app.select([run.id]); return b; })));
}
