import {emptyState} from "./dom.js";

export const id = "agent";
export const title = "Agent";

export function mount(root) {
  root.append(emptyState("Agent", "Pick a run in Runs."));
}
