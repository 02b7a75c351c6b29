import {emptyState} from "./dom.js";

export const id = "episode";
export const title = "Episode";

export function mount(root) {
  root.append(emptyState("Episode", "Pick a run in Runs."));
}
