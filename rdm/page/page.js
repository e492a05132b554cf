// Adds a slider, playback and a list of sentences to jump to. Without JavaScript the page shows all iterations.
(() => {
  const $ = (id) => document.getElementById(id);
  const slider = $("slider"), play = $("play"), all = $("all"), jump = $("jump");
  const lists = [...document.querySelectorAll(".steps")].map((list) => [...list.children]);
  const last = Number(slider.max);
  const pause = Math.max(100, Math.min(800, 15000 / (last + 1))); // ms; playback takes 15 seconds at most
  let timer = null;

  function show(index) {
    const now = Math.max(0, Math.min(last, index));
    slider.value = now;
    slider.setAttribute("aria-valuetext", `iteration ${now} of ${last}`);
    $("now").textContent = `${now} / ${last}`;
    for (const steps of lists) {
      // Shorter decodings stay at their last iteration.
      steps.forEach((step, i) => {
        if (i === Math.min(now, steps.length - 1)) step.setAttribute("aria-current", "step");
        else step.removeAttribute("aria-current");
      });
    }
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.setAttribute("aria-pressed", "false");
    play.setAttribute("aria-label", "Play");
  }

  function toggle() {
    if (timer !== null) return stop();
    if (Number(slider.value) === last) show(0);
    play.setAttribute("aria-pressed", "true");
    play.setAttribute("aria-label", "Pause");
    timer = setInterval(() => {
      show(Number(slider.value) + 1);
      if (Number(slider.value) === last) stop();
    }, pause);
  }

  function go(index) {
    stop();
    show(index);
  }

  function showAll(rows) {
    document.documentElement.classList.toggle("stepping", !rows);
    all.setAttribute("aria-pressed", String(rows));
  }

  const keys = {
    ArrowLeft: () => go(Number(slider.value) - 1),
    ArrowRight: () => go(Number(slider.value) + 1),
    Home: () => go(0),
    End: () => go(last),
    a: () => all.click(),
    " ": toggle,
  };
  document.addEventListener("keydown", (event) => {
    if (event.target === jump) return; // the list handles its keys itself
    const action = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    const presses = event.key === " " && event.target.closest("button, summary"); // the focused element handles space
    if (!action || presses || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  slider.addEventListener("input", () => go(Number(slider.value)));
  play.addEventListener("click", toggle);
  $("back").addEventListener("click", keys.ArrowLeft);
  $("forward").addEventListener("click", keys.ArrowRight);
  all.addEventListener("click", () => showAll(all.getAttribute("aria-pressed") === "false"));

  if (jump !== null) {
    jump.addEventListener("change", () => {
      const sentence = $(jump.value);
      sentence.scrollIntoView();
      sentence.focus({ preventScroll: true }); // so that the keys step again
    });
    // The list shows the sentence at the top of the window.
    const sentences = [...document.querySelectorAll(".example")];
    document.addEventListener("scroll", () => {
      const visible = sentences.find((sentence) => sentence.getBoundingClientRect().bottom > innerHeight / 4);
      if (visible && document.activeElement !== jump) jump.value = visible.id;
    }, { passive: true });
  }

  document.querySelector(".player").hidden = false;
  showAll(false);
  show(0);
})();
