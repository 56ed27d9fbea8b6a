/* Elements, numbers as people read them, and the address as the state of a page. Text enters a page as text only. */
(function () {
  "use strict";
  var app = window.inferometer = window.inferometer || {};
  app.views = {};

  /* make("td.right", {title: "x"}, child, ...): strings become text, null is left out. */
  app.make = function (kind, attributes) {
    var parts = kind.split("."), element = document.createElement(parts[0]);
    if (parts.length > 1) element.className = parts.slice(1).join(" ");
    Object.entries(attributes || {}).forEach(function (pair) {
      var name = pair[0], value = pair[1];
      if (value === null || value === undefined || value === false) return;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "value" || name === "checked") element[name] = value;
      else element.setAttribute(name, value === true ? "" : String(value));
    });
    app.fill(element, Array.prototype.slice.call(arguments, 2));
    return element;
  };
  app.fill = function (element, children) {
    children.flat(9).forEach(function (child) {
      if (child !== null && child !== undefined && child !== false) {
        element.append(child instanceof Node ? child : document.createTextNode(String(child)));
      }
    });
    return element;
  };
  app.show = function () {
    var main = document.getElementById("content");
    main.replaceChildren();
    return app.fill(main, Array.prototype.slice.call(arguments));
  };
  app.failed = function (error) {
    return app.make("div.error", { role: "alert" }, app.make("p", {}, error.message || String(error)),
      error.hint ? app.make("p.muted", {}, error.hint) : null);
  };
  app.link = function (page, query, text, attributes) {
    return app.make("a", Object.assign({ href: app.address(page, query) }, attributes || {}), text);
  };
  app.address = function (page, query) {
    var said = new URLSearchParams();
    Object.entries(query || {}).forEach(function (pair) {
      [].concat(pair[1]).forEach(function (value) {
        if (value !== null && value !== undefined && value !== "" && value !== false) said.append(pair[0], value);
      });
    });
    var text = said.toString();
    return page + ".html" + (text ? "?" + text : "");
  };

  /* What the address says, and how it is changed: `keep` replaces it, so that every view can be sent as a link. */
  app.query = function () { return new URLSearchParams(location.search); };
  app.keep = function (page, query) { history.replaceState(null, "", app.address(page, query)); };

  function digits(value) {
    var size = Math.abs(value);
    if (size >= 1000) return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
    if (size === 0) return "0";
    return String(Number(value.toPrecision(3)));
  }
  function duration(value) {
    var size = Math.abs(value);
    if (size >= 60) return Math.floor(value / 60) + "m " + Math.round(value % 60) + "s";
    if (size >= 1 || size === 0) return digits(value) + " s";
    return size >= 0.001 ? digits(value * 1e3) + " ms" : digits(value * 1e6) + " µs";
  }
  app.number = function (value, unit) {
    if (value === null || value === undefined || Number.isNaN(value)) return "-";
    if (typeof value !== "number") return String(value);
    if (unit === "s") return duration(value);
    if (unit === "share") return digits(value * 100) + "%";
    if (unit === "1/s") return digits(value) + "/s";
    return digits(value) + (unit && unit !== "requests" && unit !== "tokens" ? " " + unit : "");
  };
  app.percent = function (share) { return (share > 0 ? "+" : "") + digits(share * 100) + "%"; };
  app.bytes = function (size) {
    if (size < 1024) return size + " B";
    return size < 1048576 ? digits(size / 1024) + " KiB" : digits(size / 1048576) + " MiB";
  };
  app.when = function (text) {
    var date = new Date(text);
    if (!text || Number.isNaN(date.getTime())) return "-";
    return date.toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "short" });
  };
  app.unitOf = function (key, names) {
    var measure = names.measures[String(key).split(".")[0]];
    return measure ? measure.unit : "";
  };
  app.titleOf = function (key, names) {
    var parts = String(key).split("."), measure = names.measures[parts[0]];
    return measure ? measure.title + (parts[1] ? " " + parts[1] : "") : String(key).replace(/_/g, " ");
  };
  var STYLES = { valid: "good", better: "good", complete: "", doubtful: "doubt", unclear: "doubt", partial: "live",
    interrupted: "doubt", invalid: "bad", worse: "bad", failed: "bad", damaged: "bad" };
  app.word = function (text) {
    return text ? app.make("span.word" + (STYLES[text] ? "." + STYLES[text] : ""), {}, text) : "-";
  };
  app.style = function (text) { return STYLES[text] || ""; };
  app.verdictOf = function (run) {
    return app.word(run.state === "complete" || !run.state ? run.verdict || run.state : run.state);
  };
  app.table = function (heads, rows, kind) {
    return app.make("div.scroll", { tabindex: "0", role: "region", "aria-label": "table" }, app.make("table" + (kind || ""), {},
      app.make("thead", {}, app.make("tr", {}, heads)), app.make("tbody", {}, rows)));
  };
})();
