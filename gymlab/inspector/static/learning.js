import {emptyState} from "./dom.js";

export const id = "learning";
export const title = "Learning";

export function mount(root, app) {
  root.append(emptyState("Nothing selected", "Pick runs in Runs."));
}
