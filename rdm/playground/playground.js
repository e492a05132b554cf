// The form of the playground: what to decode, with which models and strategies. player.js shows the iterations.
(() => {
  const $ = (id) => document.getElementById(id);
  const PLACES = ["a", "b"]; // the two decodings; prefixes of their settings in the address
  let models = [], sides = [], pending = null;

  // The server writes the properties of tokens into data-style: the Content-Security-Policy forbids style attributes.
  function applyStyles(root) {
    for (const element of root.querySelectorAll("[data-style]")) element.style.cssText = element.dataset.style;
  }

  function copyOf(template) {
    return $(template).content.firstElementChild.cloneNode(true);
  }

  function fillSelect(select, entries, chosen) {
    select.replaceChildren(...entries.map(({ name, label }) => new Option(label, name, false, name === chosen)));
  }

  class Side {
    constructor(place) {
      this.place = place;
      this.name = place.toUpperCase();
      this.changed = {}; // values the user has set, by key; kept when another strategy is chosen
      this.request = null; // aborts the running request
      this.choice = copyOf("choice");
      this.result = copyOf("result");
      this.choice.querySelector("legend").textContent = `Decoding ${this.name}`;
      this.result.setAttribute("aria-label", `Decoding ${this.name}`);
      this.models = this.choice.querySelector(".models");
      this.strategies = this.choice.querySelector(".strategies");
      this.status = this.result.querySelector(".status");
      this.view = this.result.querySelector(".view");
      this.fill = this.result.querySelector(".fill");
      this.template = this.fill.querySelector("textarea");
      this.words = this.fill.querySelector(".words");
      this.template.setAttribute("aria-label", `Text with blanks of decoding ${this.name}`);
      this.models.addEventListener("change", () => this.choose(this.models.value, this.strategies.value));
      this.strategies.addEventListener("change", () => this.choose(this.models.value, this.strategies.value));
      this.template.addEventListener("input", () => this.showWords());
      this.template.addEventListener("keydown", submitOnEnter);
      this.fill.addEventListener("submit", (event) => {
        event.preventDefault();
        this.decode(this.template.value.trim());
      });
      $("choices").append(this.choice);
      $("results").append(this.result);
    }

    get model() { return models.find((model) => model.name === this.models.value); }
    get strategy() { return this.model.strategies.find((strategy) => strategy.name === this.strategies.value); }

    // Select a model and one of its strategies, and show what can be set; what does not exist becomes the first.
    choose(modelName, strategyName) {
      const model = models.find((each) => each.name === modelName) ?? models[0];
      fillSelect(this.models, models, model.name);
      const known = model.strategies.find((each) => each.name === strategyName) ?? model.strategies[0];
      fillSelect(this.strategies, model.strategies, known.name);
      this.choice.querySelector(".about").textContent = known.about;
      this.choice.querySelector(".settings-row").replaceChildren(...known.settings.map((each) => this.input(each)));
      this.fill.hidden = !model.fills;
      describeText();
      rememberSoon();
    }

    input(setting) {
      const label = document.createElement("label"), input = document.createElement("input");
      label.className = "setting";
      Object.assign(input, { type: "number", min: setting.minimum, max: setting.maximum, step: "any" });
      if (setting.step === 1) input.step = "1";
      input.dataset.key = setting.key;
      const kept = this.changed[setting.key];
      const usable = kept !== undefined && kept >= setting.minimum && kept <= setting.maximum;
      input.value = usable ? kept : setting.value;
      input.title = `${setting.minimum} to ${setting.maximum}`;
      input.addEventListener("input", () => {
        this.changed[setting.key] = input.value === "" ? undefined : Number(input.value);
        rememberSoon();
      });
      label.append(`${setting.label} `, input);
      return label;
    }

    // The values that differ from those of the strategy.
    get options() {
      const shown = [...this.choice.querySelectorAll("input")].filter((input) => input.value !== "");
      const values = shown.map((input) => [input.dataset.key, Number(input.value)]);
      return Object.fromEntries(values.filter(([key, value]) =>
        value !== this.strategy.settings.find((setting) => setting.key === key).value));
    }

    say(message, kind = "") {
      this.status.textContent = message;
      this.status.className = `status ${kind}`;
    }

    // Decode the text, or fill a template.
    async decode(template = null) {
      this.request?.abort();
      const request = this.request = new AbortController();
      const body = {
        model: this.model.name, decoding: this.strategy.name, options: this.options,
        seed: Number($("seed").value), text: oneLine($("text").value),
      };
      if (template !== null) body.template = oneLine(template);
      this.say("asking the server …", "busy");
      rememberSoon();
      try {
        const response = await fetch("decode", {
          method: "POST", headers: { "Content-Type": "application/json" },
          body: JSON.stringify(body), signal: request.signal,
        });
        if (!response.ok) return this.say((await response.json()).error, "error");
        for await (const state of jsonLines(response.body)) this.show(state);
      } catch (error) {
        if (error.name !== "AbortError") this.say("the server does not answer: is it still running?", "error");
      }
    }

    show(state) {
      if (state.state === "waiting") {
        const others = state.ahead === 1 ? "1 decoding is" : `${state.ahead} decodings are`;
        return this.say(`waiting: ${others} before this one`, "busy");
      }
      if (state.state === "decoding") return this.say("decoding …", "busy");
      if (state.state === "failed") return this.say(state.error, "error");
      const facts = [`${state.seconds.toFixed(2)} s`];
      if (state.calls !== null) facts.push(`${state.calls} network calls`);
      if (models.length > 1) facts.unshift(state.model);
      this.say(`${this.name}: ${facts.join(", ")}`);
      const article = new DOMParser().parseFromString(state.html, "text/html").querySelector("article");
      applyStyles(article);
      this.view.replaceChildren(article);
      this.template.value = state.text;
      this.showWords();
      rememberSoon();
      player.refresh();
      this.scrollToView();
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) player.toggle();
    }

    // On small screens the settings fill the window.
    scrollToView() {
      const results = $("results");
      if (results.getBoundingClientRect().top > .75 * innerHeight) results.scrollIntoView();
    }

    // The words of the text below it: a click blanks a word, or brings it back.
    showWords() {
      const words = this.template.value.split(/\s+/).filter(Boolean);
      this.words.replaceChildren(...words.map((word, index) => {
        const button = document.createElement("button");
        Object.assign(button, { type: "button", textContent: word });
        button.setAttribute("aria-pressed", String(word === "_"));
        button.addEventListener("click", () => {
          const blank = button.getAttribute("aria-pressed") === "false";
          button.setAttribute("aria-pressed", String(blank));
          button.textContent = blank ? "_" : word;
          this.template.value = [...this.words.children].map((each) => each.textContent).join(" ");
          rememberSoon();
        });
        return button;
      }));
      rememberSoon();
    }
  }

  function oneLine(text) {
    return text.replace(/\s*\n\s*/g, " ").trim();
  }

  function submitOnEnter(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    event.target.form.requestSubmit();
  }

  async function* jsonLines(stream) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) yield JSON.parse(line);
    }
  }

  function describeText() {
    if (sides.length === 0) return;
    const reads = new Set(sides.map((side) => side.model.reads));
    const name = reads.size === 1 ? [...reads][0] : "text";
    $("reads").textContent = name[0].toUpperCase() + name.slice(1);
  }

  // The settings are the fragment of the address, which is not sent to the server.
  function remember() {
    clearTimeout(pending);
    if (sides.length < PLACES.length) return;
    const values = new URLSearchParams({ text: $("text").value, seed: $("seed").value });
    for (const side of sides) {
      values.set(`${side.place}.model`, side.model.name);
      values.set(`${side.place}.decoding`, side.strategy.name);
      for (const [key, value] of Object.entries(side.options)) values.set(`${side.place}.${key}`, value);
      if (/(^|\s)_(\s|$)/.test(side.template.value)) values.set(`${side.place}.template`, side.template.value);
    }
    history.replaceState(null, "", `#${values}`);
  }

  // Browsers limit how often the address changes: not at every key.
  function rememberSoon() {
    clearTimeout(pending);
    pending = setTimeout(remember, 300);
  }

  function restore() {
    const values = new URLSearchParams(location.hash.slice(1)), missing = [];
    $("text").value = values.get("text") ?? "";
    $("seed").value = values.get("seed") ?? 1;
    const restored = PLACES.map((place, index) => {
      const own = [...values].filter(([key]) => key.startsWith(`${place}.`)).map(([key, value]) => [key.slice(2), value]);
      const { model = (models[index] ?? models[0]).name, decoding, template = "", ...numbers } = Object.fromEntries(own);
      const offered = models.find((each) => each.name === model)?.strategies.map((each) => each.name);
      if (offered === undefined) missing.push(`model ${model}`);
      else if (decoding !== undefined && !offered.includes(decoding)) missing.push(`strategy ${decoding}`);
      // With a single model the two sides begin with different strategies.
      const first = offered?.[index < models.length ? 0 : 1];
      return { model, decoding: decoding ?? first, template, numbers };
    });
    sides.forEach((side, index) => {
      const { model, decoding, template, numbers } = restored[index];
      side.changed = Object.fromEntries(Object.entries(numbers).map(([key, value]) => [key, Number(value)]));
      side.template.value = template;
      side.choose(model, decoding);
      side.showWords();
    });
    $("note").textContent = missing.length ? `not here, though in the link: ${missing.join(", ")}` : "";
  }

  async function copyLink() {
    remember();
    try {
      await navigator.clipboard.writeText(location.href);
      $("note").textContent = "copied";
    } catch {
      $("note").textContent = "the address of this page is the link";
    }
  }

  async function start() {
    applyStyles(document);
    models = await (await fetch("models")).json();
    document.body.classList.toggle("one-model", models.length === 1);
    const made = PLACES.map((place) => new Side(place));
    made.forEach((side) => fillSelect(side.models, models));
    made.forEach((side) => fillSelect(side.strategies, models[0].strategies));
    sides = made;
    restore();
    $("text").addEventListener("input", rememberSoon);
    $("seed").addEventListener("input", rememberSoon);
    $("text").addEventListener("keydown", submitOnEnter);
    $("copy").addEventListener("click", copyLink);
    addEventListener("hashchange", restore);
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") event.target.blur(); // afterwards the keys of the player work
    });
    $("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      sides.forEach((side) => side.decode());
    });
  }

  start();
})();
