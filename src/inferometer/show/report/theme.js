/* Light or dark: the choice of the reader, else the setting of the system. */
(function () {
  "use strict";
  var root = document.documentElement, key = "inferometer-theme";
  function kept() { try { return localStorage.getItem(key); } catch (_) { return null; } }
  function keep(theme) { try { localStorage.setItem(key, theme); } catch (_) { /* private window */ } }
  var system = window.matchMedia ? window.matchMedia("(prefers-color-scheme: dark)") : { matches: false };
  function current() { return root.dataset.theme || (system.matches ? "dark" : "light"); }
  function announce() { document.dispatchEvent(new CustomEvent("themechange", { detail: current() })); }
  if (kept() === "dark" || kept() === "light") root.dataset.theme = kept();
  if (system.addEventListener) system.addEventListener("change", announce);
  window.inferometerTheme = { current: current };
  document.addEventListener("click", function (event) {
    if (!event.target.closest || !event.target.closest("[data-toggle-theme]")) return;
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    keep(root.dataset.theme);
    announce();
  });
})();
