/* The table of runs: search, conditions, columns, runs picked for a comparison. The address has all but the picks. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make, PAGE = 50, AGAIN_MS = 5000;
  var MOST_PICKS = 12; /* a link to a comparison of more would be too long; Explore takes any number */
  var state, parts = {}, chosen = new Set(), timer = null, latest = 0, shown = false;

  /* Picked runs survive paging, Back and a reload of this tab. */
  function remember() { try { sessionStorage.setItem("picks", Array.from(chosen).join(",")); } catch (_) { /* private window */ } }
  function remembered() { try { return new Set((sessionStorage.getItem("picks") || "").split(",").filter(Boolean)); } catch (_) { return new Set(); } }

  function read() {
    var query = app.query();
    state = { search: query.get("search") || "", where: query.getAll("where"), sort: query.get("sort") || "",
      columns: (query.get("columns") || "").split(",").filter(Boolean), offset: Number(query.get("offset")) || 0, cases: query.get("cases") === "1" };
    if (!state.columns.length) state.columns = app.names.columns.slice();
  }
  function write() {
    var usual = state.columns.join() === app.names.columns.join();
    app.keep("runs", { search: state.search, where: state.where, sort: state.sort, offset: state.offset || "",
      columns: usual ? "" : state.columns.join(","), cases: state.cases ? "1" : "" });
  }
  function isPlain(name) { return app.names.plain.includes(name); }

  app.views.runs = function () {
    read();
    chosen = remembered();
    shown = false;
    parts.chips = make("div.chips", { "aria-label": "Conditions" });
    parts.rows = make("div");
    parts.compare = make("button.primary", { type: "button", disabled: true, onclick: compare }, "Compare");
    parts.mistake = make("div", { id: "mistake" });
    parts.clear = make("button", { type: "button", hidden: true, onclick: function () { chosen.clear(); mark(); parts.rows.querySelectorAll("td.pick input").forEach(function (box) { box.checked = false; }); } }, "Clear picks");
    app.show(make("h1", {}, "Runs"), tools(), parts.mistake, parts.chips, chooser(), parts.rows);
    drawChips();
    mark();
    load();
  };
  function tools() {
    var pause;
    var search = make("input", { type: "search", value: state.search, placeholder: "model, name, tag, …", oninput: function () {
      clearTimeout(pause);
      pause = setTimeout(function () { state.search = search.value; state.offset = 0; load(); }, 200);
    } });
    var where = make("input", { type: "text", placeholder: "ttft.p99 < 500ms", list: "known-names", spellcheck: "false", autocapitalize: "off" });
    function add(event) {
      event.preventDefault();
      if (where.value.trim()) { state.where.push(where.value.trim()); where.value = ""; state.offset = 0; drawChips(); load(); }
    }
    var known = [].concat(app.names.plain, Object.keys(app.names.measures)).map(function (name) { return make("option", { value: name }); });
    return make("form.tools", { onsubmit: add, role: "search" },
      make("label.wide", {}, "Search", search),
      make("label.wide", {}, "Filter", where), make("datalist", { id: "known-names" }, known),
      make("button", { type: "submit" }, "Add condition"), parts.compare, parts.clear);
  }
  function drawChips() {
    parts.chips.replaceChildren();
    state.where.forEach(function (text, at) {
      parts.chips.append(make("button", { type: "button", "aria-label": "Remove the condition " + text, onclick: function () {
        state.where.splice(at, 1); state.offset = 0; drawChips(); load();
      } }, text + " ×"));
    });
  }
  function chooser() {
    var box = make("div.columns", {}), more = make("input", { type: "text", placeholder: "plan.load.rate", "aria-label": "Another column" });
    function draw() {
      box.replaceChildren();
      Array.from(new Set([].concat(state.columns, app.names.plain, app.names.columns))).forEach(function (name) {
        box.append(make("label", {}, make("input", { type: "checkbox", checked: state.columns.includes(name), onchange: function () {
          state.columns = state.columns.includes(name) ? state.columns.filter(function (other) { return other !== name; }) : state.columns.concat(name);
          load();
        } }), app.titleOf(name, app.names)));
      });
    }
    draw();
    var cases = make("label.check", {}, make("input", { type: "checkbox", checked: state.cases, onchange: function (event) { state.cases = event.target.checked; state.offset = 0; load(); } }), "With cases of sweeps, searches and A/B tests");
    return make("div.options", {}, cases, make("details", {}, make("summary", {}, "Columns"), box, make("form.tools", { onsubmit: function (event) {
      event.preventDefault();
      if (more.value.trim()) { state.columns = state.columns.concat(more.value.trim()); more.value = ""; draw(); load(); }
    } }, make("label", {}, "Any measure or setting", more), make("button", { type: "submit" }, "Add column"))));
  }
  function load(quietly) {
    var now = ++latest;
    clearTimeout(timer);
    write();
    return app.data.runs({ search: state.search, where: state.where, sort: state.sort, limit: PAGE, offset: state.offset, experiments: state.cases ? "true" : "false",
      columns: state.columns.filter(function (name) { return !isPlain(name); }).join(",") })
      .then(function (answer) {
        if (now !== latest) return;
        parts.mistake.replaceChildren();
        shown = true;
        draw(answer);
        if (app.names.live) timer = setTimeout(function () { load(true); }, AGAIN_MS);
      }).catch(function (error) {
        if (now !== latest) return;
        if (!error.gone) mistaken(error);
        if (error.gone) timer = setTimeout(function () { load(true); }, 1000);
      });
  }
  /* The error is shown next to the field, and the table stays. A page opened with a wrong condition shows all runs. */
  function mistaken(error) {
    parts.mistake.replaceChildren(app.failed(error));
    if (shown || !state.where.length) return;
    app.data.runs({ limit: PAGE, experiments: state.cases ? "true" : "false" }).then(function (answer) { if (!shown) draw(answer); }).catch(function () { /* already shown */ });
  }
  function draw(answer) {
    if (!answer.runs.length && answer.total) { state.offset = PAGE * Math.floor((answer.total - 1) / PAGE); load(); return; } /* past the end: runs were deleted */
    if (!answer.runs.length) { parts.rows.replaceChildren(nothing(answer)); return; }
    var focused = document.activeElement && document.activeElement.id;
    var heads = [make("th", {}, make("small", {}, "pick")), head("id", "Run")].concat(state.columns.map(function (name) { return head(name); }));
    var table = app.table(heads, answer.runs.map(line), ".runs.cards");
    parts.rows.replaceChildren(app.make("p.muted", { role: "status", id: "count" }, counted(answer)), table, pager(answer));
    if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
  }
  function counted(answer) {
    var text = answer.total === 1 ? "1 run" : app.text.number(answer.total) + " runs";
    return answer.hidden ? text + "; " + app.text.number(answer.hidden) + " cases of experiments are not shown" : text;
  }
  function nothing(answer) {
    var filtered = state.search || state.where.length;
    if (answer.hidden) return make("div.empty", {}, make("p", { role: "status", id: "count" }, filtered ? "Only cases of experiments match." : "Only cases of experiments so far."),
      make("button", { type: "button", onclick: function () { state.cases = true; write(); app.views.runs(); } }, "Show " + app.text.number(answer.hidden)));
    return make("div.empty", {}, make("p", { role: "status", id: "count" }, filtered ? "No run matches." : "No runs yet."),
      filtered ? make("button", { type: "button", onclick: function () { state.search = ""; state.where = []; app.keep("runs", {}); app.views.runs(); } }, "Show all")
        : make("p", {}, "Create one: ", make("code", {}, "inferometer run")));
  }
  function head(name, title) {
    var falls = state.sort === "-" + name, rises = state.sort === name;
    return make("th" + (isNumeric(name) ? ".right" : ""), { "aria-sort": falls ? "descending" : rises ? "ascending" : null },
      make("button.plain", { type: "button", id: "sort-" + name, onclick: function () {
        state.sort = falls ? name : rises ? "" : "-" + name; state.offset = 0; load();
      } }, title || app.titleOf(name, app.names)));
  }
  function line(run) {
    var pick = make("input", { type: "checkbox", checked: chosen.has(run.id), "aria-label": "Pick " + run.id + " for comparison", id: "pick-" + run.id, onchange: function () {
      if (pick.checked && chosen.size >= MOST_PICKS) { pick.checked = false; return; }
      if (pick.checked) chosen.add(run.id); else chosen.delete(run.id);
      mark();
    } });
    return make("tr", {}, make("td.pick", {}, pick), make("td.name", {}, app.link("run", { id: run.id }, run.id.replace(/^\d{8}-\d{6}-/, ""), { title: run.id })),
      state.columns.map(function (name) { return cell(run, name); }));
  }
  function cell(run, name) {
    if (name === "verdict") return make("td", {}, app.verdictOf(run));
    var value = name === "started" ? app.day(run.started) : name === "tags" ? (run.tags || []).join(", ") : isPlain(name) ? run[name] : run.more[name];
    var missing = value === undefined || value === null || value === "";
    var number = typeof value === "number", text = missing ? "-" : number && !isPlain(name) ? ((run.weak || []).includes(name) ? "~" : "") + app.text.value(value, inTable(app.unitOf(name, app.names))) : number ? app.text.number(value) : value;
    return make("td" + (number || isNumeric(name) ? ".right" : ["what", "workload", "load", "hardware", "tags"].includes(name) ? ".words" + (missing ? ".few" : "") : "") + (missing ? ".none" : ""), { "data-name": number || name === "hardware" ? app.titleOf(name, app.names) : null, title: typeof text === "string" && text.length > 30 ? text : null }, text,
      name === "what" && run.name && run.name !== text ? make("div.muted.small.short", { title: run.name }, run.name) : null);
  }
  function inTable(unit) { return unit === "tokens/s" ? "" : unit; } /* the unit is in the heading */
  function isNumeric(name) { return name === "requests" || (!isPlain(name) && !name.startsWith("plan.")); }
  function mark() {
    remember();
    parts.compare.disabled = chosen.size < 2;
    parts.clear.hidden = !chosen.size;
    parts.compare.textContent = chosen.size > 1 ? "Compare " + chosen.size : chosen.size ? "Pick one more to compare" : "Pick runs to compare";
    parts.compare.title = "At most " + MOST_PICKS + " runs; Explore shows any number in one chart";
  }
  function compare() {
    var ids = Array.from(chosen).sort();
    location.href = app.address("compare", { before: ids[0], after: app.packIds(ids.slice(1)) });
  }
  function pager(answer) {
    if (answer.total <= PAGE) return null;
    function to(offset, text) {
      return make("button", { type: "button", disabled: offset < 0 || offset >= answer.total, onclick: function () { state.offset = offset; load(); } }, text);
    }
    return make("div.pager", {}, to(answer.offset - PAGE, "Newer"), make("span.muted", {}, (answer.offset + 1) + " to " + Math.min(answer.total, answer.offset + PAGE)), to(answer.offset + PAGE, "Older"));
  }
})();
