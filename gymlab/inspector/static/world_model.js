import {emptyState} from "./dom.js";

export const id = "world_model";
export const title = "World model";

export function mount(root) {
  root.append(emptyState("World model", "Pick a run in Runs."));
}
