// Steps through the iterations of the decodings on a page, and plays them. Without JavaScript all iterations are shown.
const player = (() => {
  const $ = (id) => document.getElementById(id);
  const slider = $("slider"), play = $("play"), all = $("all"), bar = document.querySelector(".player");
  let lists = [], last = 0, timer = null;

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
    const pause = Math.max(100, Math.min(800, 15000 / (last + 1))); // ms; playback takes 15 seconds at most
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
    if (bar.hidden || event.target.closest("select, textarea, input:not(#slider)")) return; // these handle their keys
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
  showAll(false);

  return {
    // Find the decodings on the page and go to their first iteration.
    refresh() {
      lists = [...document.querySelectorAll(".steps")].map((list) => [...list.children]);
      last = Math.max(0, ...lists.map((steps) => steps.length - 1));
      slider.max = last;
      bar.hidden = lists.length === 0;
      go(0);
    },
    toggle,
  };
})();
