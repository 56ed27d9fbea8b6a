/* Elements, and the address as the state of a page; numbers are in formats.js. Text is never inserted as HTML. */
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
    var params = new URLSearchParams();
    Object.entries(query || {}).forEach(function (pair) {
      [].concat(pair[1]).forEach(function (value) {
        if (value !== null && value !== undefined && value !== "" && value !== false) params.append(pair[0], value);
      });
    });
    var text = params.toString();
    return page + ".html" + (text ? "?" + text : "");
  };

  /* Shows a notice while the server does not answer. */
  app.gone = function (is) {
    var notice = document.getElementById("gone");
    if (is && !notice) document.body.prepend(app.make("div", { id: "gone", role: "alert" }, "The dashboard does not answer. Is it still running? Trying again…"));
    if (!is && notice) notice.remove();
  };

  /* The query of the address. `keep` replaces the address, so that every view can be sent as a link. */
  app.query = function () { return new URLSearchParams(location.search); };
  app.keep = function (page, query) { history.replaceState(null, "", app.address(page, query)); };

  app.when = function (text) {
    var date = new Date(text);
    if (!text || Number.isNaN(date.getTime())) return "-";
    return date.toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "short" });
  };
  /* Short: `11-18 02:43` in this year, only the date in other years. */
  app.day = function (text) {
    var whole = app.when(text);
    return whole === "-" ? whole : whole.startsWith(new Date().getFullYear() + "-") ? whole.slice(5) : whole.slice(0, 10);
  };

  /* The header of a run, the same on every page: model, engine, accelerators; workload, load; name, time, commit, id. */
  app.header = function (about, more, level) {
    var first = [about.model, about.engine, about.hardware].filter(Boolean), second = [about.workload, about.load].filter(Boolean);
    return app.make("div.about", {},
      app.make(level || "h1", {}, first.length ? first.join(" · ") : about.name || about.id, more || null),
      second.length ? app.make("p.traffic", {}, second.join(" · ")) : null,
      app.make("p.muted.small", {}, [about.name, app.when(about.started), about.commit && "commit " + about.commit].filter(Boolean).join(" · "), " ", app.make("code", {}, about.id)));
  };
  app.line = function (about) {
    return [about.name, about.model, about.engine, about.hardware, about.workload, about.load].filter(Boolean).join(" · ") || about.id;
  };
  /* Ids in addresses: an id with the same date as the previous one is written without it, so that links stay short. */
  app.packIds = function (ids) {
    var day = "";
    return ids.map(function (id) {
      var match = /^(\d{8})-(\d{6}-.+)$/.exec(id), same = match && match[1] === day;
      if (match) day = match[1];
      return same ? match[2] : id;
    }).join(",");
  };
  app.unpackIds = function (text) {
    var day = "";
    return String(text || "").split(",").filter(Boolean).map(function (id) {
      var whole = /^(\d{8})-\d{6}-/.exec(id);
      if (whole) day = whole[1];
      return !whole && day && /^\d{6}-[a-z]/.test(id) ? day + "-" + id : id;
    });
  };

  app.unitOf = function (key, names) {
    var measure = names.measures[String(key).split(".")[0]];
    return measure ? measure.unit : "";
  };
  app.titleOf = function (key, names) {
    var parts = String(key).split("."), measure = names.measures[parts[0]];
    return measure ? measure.title + (parts[1] ? " " + parts[1] : "") : String(key).replace(/^plan\./, "").replace(/_/g, " ");
  };
  var STYLES = { valid: "good", better: "good", complete: "", doubtful: "doubt", unclear: "doubt", partial: "doubt",
    interrupted: "doubt", invalid: "bad", worse: "bad", failed: "bad", damaged: "bad", quiet: "doubt",
    meets: "good", misses: "bad", running: "live" };
  app.word = function (text) {
    return text ? app.make("span.word" + (STYLES[text] ? "." + STYLES[text] : ""), {}, text) : "-";
  };
  app.style = function (text) { return STYLES[text] || ""; };
  app.verdictOf = function (run) {
    return app.word(run.state === "complete" || !run.state ? run.verdict || run.state : run.state);
  };
  app.table = function (heads, rows, kind, label) {
    return app.make("div.scroll", { tabindex: "0", role: "region", "aria-label": label || "table" }, app.make("table" + (kind || ""), {},
      app.make("thead", {}, app.make("tr", {}, heads)), app.make("tbody", {}, rows)));
  };
})();
