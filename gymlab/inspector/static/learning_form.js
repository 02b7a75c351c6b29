// The form of the Learning tab that changes hyperparameters of a run while it trains.

import {element} from "./dom.js";

export class ChangeForm {
  constructor(app) {
    this.app = app;
    this.run = null;
    this.body = element("tbody");
    this.message = element("div", {class: "form-message", role: "status"});
    this.button = element("button", {type: "submit", class: "primary"}, "Change");
    this.heading = element("h3");
    this.form = element("form", {onsubmit: (event) => this.#submit(event)}, element("div", {class: "scroll"}, element("table", {class: "form-table"}, element("thead", {}, element("tr", {}, element("th", {}, "hyperparameter"), element("th", {}, "now"), element("th", {}, "new value"), element("th", {class: "col-about"}, "about"))), this.body)), element("div", {class: "toolbar"}, this.button, this.message));
    this.root = element("section", {class: "card change-form", hidden: true, "aria-label": "Change while it trains"}, this.heading, this.form);
  }

  /** Show the form of the run that trains: the primary one, else the first that does. */
  async update(data) {
    const {app} = this;
    const running = [app.primary, ...app.selected].find((id) => app.run(id)?.status === "running") ?? null;
    if (running !== this.run) {
      this.run = running;
      this.root.hidden = !running;
      this.body.replaceChildren();
      this.#say("");
      this.applied = null;
      if (running) {
        this.heading.textContent = `Change ${running} while it trains`;
        this.#say("Reading its hyperparameters …");
        await this.#read(running);
      }
    }
    if (this.run) this.#watch(data.state(this.run).marks);
  }

  /** Tell when a change has landed, and show the values anew. */
  #watch(marks) {
    if (!marks) return;
    const made = marks.changes.length;
    if (this.applied !== null && made > this.applied) {
      for (const change of marks.changes.slice(this.applied)) this.app.toast(`${change.text} at ${change.env_steps.toLocaleString("en-US")} env steps`, "good");
      this.#say("");
      this.#read(this.run);
    }
    this.applied = made;
  }

  async #read(run) {
    try {
      const answer = await this.app.get(`/api/runs/${run}/hyperparameters`);
      if (run !== this.run) return;
      this.#rows(answer.hyperparameters);
      if (this.message.classList.contains("reading")) this.#say("");
    } catch (error) {
      if (run === this.run) this.#say(error.message, "bad");
    }
  }

  #rows(hyperparameters) {
    const typed = new Map([...this.body.querySelectorAll("input")].map((input) => [input.name, input.value]));
    const focused = this.body.contains(document.activeElement) ? document.activeElement.name : null;
    this.body.replaceChildren(...hyperparameters.map((one) => {
      const input = element("input", {type: "text", name: one.name, placeholder: one.example, "aria-label": `New value of ${one.name}`, autocomplete: "off", spellcheck: "false", title: `Takes ${one.takes}`, value: typed.get(one.name) ?? ""});
      const now = element("td", {class: "col-now"}, one.value, one.wanted === null ? null : element("span", {class: "waits", title: "asked for; the run takes it at its next epoch"}, ` → ${one.wanted}`));
      return element("tr", {}, element("td", {}, element("code", {}, one.name)), now, element("td", {}, input), element("td", {class: "muted small col-about"}, `${one.about} Takes ${one.takes}.`));
    }));
    if (focused) this.body.querySelector(`[name="${focused}"]`)?.focus();
  }

  async #submit(event) {
    event.preventDefault();
    const inputs = [...this.body.querySelectorAll("input")].filter((input) => input.value.trim());
    if (!inputs.length) {
      this.#say("Type a new value first: a number, a schedule such as lin_1e-3, or null.", "bad");
      return;
    }
    this.button.disabled = true;
    try {
      const values = Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]));
      const answer = await this.app.post(`/api/runs/${this.run}/hyperparameters`, {values});
      if (answer.refused) {
        this.#say(answer.refused, "bad");
        return;
      }
      for (const input of inputs) input.value = "";
      this.#rows(answer.hyperparameters);
      this.#say(answer.changed.length ? `Asked for ${answer.changed.join(", ")}: from its next epoch on.` : "It has these values already.");
    } catch (error) {
      this.#say(error.message, "bad");
    } finally {
      this.button.disabled = false;
    }
  }

  #say(text, kind = "") {
    this.message.textContent = text;
    this.message.className = `form-message ${kind} ${text.startsWith("Reading") ? "reading" : ""}`;
  }
}
