// The list of sentences to jump to.
(() => {
  const $ = (id) => document.getElementById(id);
  const jump = $("jump");
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
  player.refresh();
})();
