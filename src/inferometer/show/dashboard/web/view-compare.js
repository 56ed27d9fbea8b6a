/* Comparison of any runs: two sides with a status for each measure, and all numbers side by side. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make, state, suggestions;

  function words(name) { return app.unpackIds(app.query().get(name)); }
  var known = {}; /* runs by id, as the last comparison described them */
  app.views.compare = function () {
    state = { before: words("before"), after: words("after"), every: app.query().get("every") === "1" };
    app.show(make("h1", {}, "Compare"), make("div", { id: "sides" }), make("div", { id: "found" }));
    drawSides();
    return load();
  };
  function write() { app.keep("compare", { before: app.packIds(state.before), after: app.packIds(state.after), every: state.every ? "1" : "" }); }
  /* The runs of both sides, one column each. */
  function drawSides() {
    var place = document.getElementById("sides");
    var columns = [["before", "Before"], ["after", "After"]].map(function (pair) {
      return make("section.side-column", { id: "side-" + pair[0] }, make("h2", {}, pair[1] + (state[pair[0]].length > 1 ? ", " + state[pair[0]].length + " runs" : "")),
        state[pair[0]].length ? make("ul.list", {}, state[pair[0]].map(side)) : make("p.muted", {}, "no run yet"));
    });
    place.replaceChildren(make("div.sides", {}, columns), adder());
  }
  function side(id) {
    function choice(name, text) {
      return make("label", {}, make("input", { type: "radio", name: "side-" + id, checked: state[name].includes(id), onchange: function () { move(id, name); } }), text);
    }
    var about = known[id];
    return make("li", {}, about ? app.header(about, null, "h3") : make("code", {}, id), make("span.side", {}, choice("before", "before"), choice("after", "after")), " ", app.link("run", { id: id }, "open"), " ",
      make("button", { type: "button", "aria-label": "Remove " + id, onclick: function () { move(id, null); } }, "×"));
  }
  function move(id, name) {
    ["before", "after"].forEach(function (other) { state[other] = state[other].filter(function (own) { return own !== id; }); });
    if (name) state[name].push(id);
    write(); drawSides(); load();
  }
  function adder() {
    var input = make("input", { type: "text", list: "run-ids", placeholder: app.names.live ? "id, name, latest, tag" : "the id of a run" }), suggested = make("datalist", { id: "run-ids" });
    input.addEventListener("focus", function () { /* only now: reading a comparison does not need them */
      suggestions = suggestions || app.data.runs({ limit: 100, experiments: "false" });
      suggestions.then(function (answer) {
        if (!suggested.childNodes.length) suggested.append.apply(suggested, answer.runs.map(function (run) { return make("option", { value: run.id }, [run.what, run.workload, run.load].filter(Boolean).join(" · ")); }));
      }).catch(function () { suggestions = null; /* no suggestions; the next focus tries again */ });
    });
    function add(name) {
      return make("button", { type: "button", onclick: function () { if (input.value.trim()) move(input.value.trim(), name); } }, "Add " + name);
    }
    return make("div.tools", {}, make("label.wide", {}, "Run", input, suggested), add("before"), add("after"),
      app.names.live && make("button.toggle", { type: "button", "aria-pressed": String(state.every), onclick: function (event) {
        state.every = !state.every; event.target.setAttribute("aria-pressed", String(state.every)); write(); load();
      } }, "every measure"));
  }
  function load() {
    var place = document.getElementById("found");
    if (!state.before.length || !state.after.length) {
      place.replaceChildren(make("p.muted", { role: "status" }, "Choose a run for each side, or pick runs from the ", make("a", { href: "runs.html" }, "list"), "."));
      return Promise.resolve();
    }
    place.replaceChildren(make("p.muted", { role: "status" }, "Comparing…"));
    app.soon();
    return app.data.compare({ before: state.before.join(","), after: state.after.join(","), every: state.every ? "true" : "" })
      .then(function (answer) {
        answer.runs.before.concat(answer.runs.after).forEach(function (about) { known[about.id] = about; });
        /* a name, a tag or `latest` in the address is replaced by the id */
        state.before = answer.runs.before.map(function (about) { return about.id; });
        state.after = answer.runs.after.map(function (about) { return about.id; });
        write(); drawSides();
        place.replaceChildren(); app.fill(place, [answer.note ? make("p.muted", {}, answer.note) : null, verdict(answer), judged(answer), app.charts({ charts: answer.charts }), numbers(answer)]);
      })
      .catch(function (error) { place.replaceChildren(app.failed(error)); });
  }
  /* The same texts as in the terminal and the report: they come from the server. */
  function verdict(answer) {
    var view = answer.view;
    if (!view) return null; /* the note says why */
    var style = view.status === "not comparable" ? "bad" : app.style(view.status);
    return make("div.verdict" + (style ? "." + style : ""), {}, make("b", {}, view.status), view.counts ? " " + view.counts : null,
      view.objections.length ? make("ul", {}, view.objections.map(function (text) { return make("li", {}, text); })) : null);
  }
  function judged(answer) {
    if (!answer.view) return null;
    var view = answer.view, last = view.columns.length + 1;
    var heads = ["measure"].concat(view.columns, [""]).map(function (text, at) { return make("th" + (at && at < last ? ".right" : ""), {}, text); });
    var rows = view.rows.map(function (row) {
      return make("tr", {}, make("td", {}, row.title), row.cells.map(function (text) { return make("td.right", {}, text); }), make("td", {}, app.word(row.status)));
    });
    var facts = view.facts.map(function (pair) { return make("tr", {}, make("td", {}, pair[0]), make("td", {}, pair[1])); });
    return make("section", {}, make("h2", {}, "Changes"), rows.length ? app.table(heads, rows, ".grid") : null, app.table([], facts, ".facts"));
  }
  function numbers(answer) {
    var runs = answer.runs.before.concat(answer.runs.after);
    var heads = [make("th", {}, "measure")].concat(runs.map(function (run, at) {
      return make("th.right.wrap", {}, app.link("run", { id: run.id }, [run.name, run.load].filter(Boolean).join(" · ") || run.id.replace(/^\d+-\d+-/, ""), { title: app.line(run) }), make("br"), make("small", {}, (at < answer.runs.before.length ? "before" : "after") + ", " + app.day(run.started)));
    }));
    var rows = answer.table.map(function (line) {
      return make("tr", {}, make("td", {}, line.title), line.values.map(function (value, at) { return make("td.right", {}, (line.weak && line.weak[at] ? "~" : "") + app.text.value(value, line.unit)); }));
    });
    return make("section", {}, make("h2", {}, "All numbers"), make("details", { open: !answer.view }, make("summary", {}, rows.length + " numbers"), app.table(heads, rows, ".grid")));
  }
})();
