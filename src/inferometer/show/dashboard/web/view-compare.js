/* Comparison of any runs: two sides, judged measure by measure, and all numbers beside each other. */
(function () {
  "use strict";
  var app = window.inferometer, make = app.make, state;

  function words(name) { return (app.query().get(name) || "").split(",").filter(Boolean); }
  app.views.compare = function () {
    state = { before: words("before"), after: words("after"), every: app.query().get("every") === "1" };
    app.show(make("h1", {}, "Compare"), make("div", { id: "sides" }), make("div", { id: "found" }));
    drawSides();
    return load();
  };
  function write() { app.keep("compare", { before: state.before.join(","), after: state.after.join(","), every: state.every ? "1" : "" }); }
  function drawSides() {
    var place = document.getElementById("sides"), rows = state.before.concat(state.after).map(side);
    place.replaceChildren(rows.length ? make("ul.list", {}, rows) : "", adder());
  }
  function side(id) {
    function choice(name, text) {
      return make("label", {}, make("input", { type: "radio", name: "side-" + id, checked: state[name].includes(id), onchange: function () { move(id, name); } }), text);
    }
    return make("li", {}, make("span.side", {}, choice("before", "before"), choice("after", "after")), " ", app.link("run", { id: id }, id), " ",
      make("button", { type: "button", "aria-label": "Leave out " + id, onclick: function () { move(id, null); } }, "×"));
  }
  function move(id, name) {
    ["before", "after"].forEach(function (each) { state[each] = state[each].filter(function (other) { return other !== id; }); });
    if (name) state[name].push(id);
    write(); drawSides(); load();
  }
  function adder() {
    var input = make("input", { type: "text", list: "run-ids", placeholder: app.names.live ? "id, name, latest, tag" : "the id of a run" }), known = make("datalist", { id: "run-ids" });
    app.data.runs({ limit: 100 }).then(function (found) {
      found.runs.forEach(function (run) { known.append(make("option", { value: run.id }, run.name || run.model || "")); });
    }).catch(function () { /* without suggestions */ });
    function add(name) {
      return make("button", { type: "button", onclick: function () { if (input.value.trim()) move(input.value.trim(), name); } }, "Add " + name);
    }
    return make("div.tools", {}, make("label.wide", {}, "Run", input, known), add("before"), add("after"),
      app.names.live && make("button.toggle", { type: "button", "aria-pressed": String(state.every), onclick: function (event) {
        state.every = !state.every; event.target.setAttribute("aria-pressed", String(state.every)); write(); load();
      } }, "every measure"));
  }
  function load() {
    var place = document.getElementById("found");
    if (!state.before.length || !state.after.length) {
      place.replaceChildren(make("p.muted", { role: "status" }, "Choose a run for each side, or pick runs from the ", make("a", { href: "index.html" }, "list"), "."));
      return Promise.resolve();
    }
    place.replaceChildren(make("p.muted", { role: "status" }, "Comparing…"));
    return app.data.compare({ before: state.before.join(","), after: state.after.join(","), every: state.every ? "true" : "" })
      .then(function (found) { place.replaceChildren(); app.fill(place, [verdict(found), judged(found), app.charts(found), numbers(found)]); })
      .catch(function (error) { place.replaceChildren(app.failed(error)); });
  }
  function verdict(found) {
    var said = (found.objections || []).map(function (each) { return make("li", {}, each.text); });
    var facts = [found.axes, found.history ? found.history + " earlier runs tell how much runs differ" : null].filter(Boolean).join(" · ");
    if (!found.word) return null; /* the note says why */
    return make("div.verdict" + (app.style(found.word) ? "." + app.style(found.word) : ""), {}, make("b", {}, found.word),
      facts ? make("p.muted", {}, facts) : null, said.length ? make("ul", {}, said) : null);
  }
  function amount(each, value) { return each.relative ? app.percent(value) : app.number(value, each.unit); }
  function judged(found) {
    if (!found.changes || !found.changes.length) return null;
    var reasons = found.changes.some(function (each) { return each.why; });
    var heads = ["measure", "before", "after", "change", "interval", ""].concat(reasons ? ["why"] : []).map(function (text, at) { return make("th" + (at && at < 5 ? ".right" : ""), {}, text); });
    var rows = found.changes.map(function (each) {
      return make("tr", {}, make("td", {}, each.title), make("td.right", {}, app.number(each.before, each.unit)), make("td.right", {}, app.number(each.after, each.unit)),
        make("td.right", {}, amount(each, each.change)), make("td.right", {}, each.interval ? amount(each, each.interval[0]) + " to " + amount(each, each.interval[1]) : "-"),
        make("td", {}, app.word(each.word)), reasons ? make("td.muted", {}, each.why || "") : null);
    });
    return make("section", {}, make("h2", {}, "What changed"), app.table(heads, rows, ".grid"));
  }
  function numbers(found) {
    var runs = found.runs.before.concat(found.runs.after);
    var heads = [make("th", {}, "measure")].concat(runs.map(function (run, at) {
      return make("th.right", {}, app.link("run", { id: run.id }, run.id.replace(/^\d+-\d+-/, "")), make("br"), make("small", {}, at < found.runs.before.length ? "before" : "after"));
    }));
    var rows = found.table.map(function (line) {
      return make("tr", {}, make("td", {}, line.title), line.values.map(function (value, at) {
        var first = line.values[0], change = at && first && value !== null ? value / first - 1 : null;
        return make("td.right", {}, app.number(value, line.unit), change ? make("small", {}, " " + app.percent(change)) : null);
      }));
    });
    return make("section", {}, make("h2", {}, "All numbers"), make("details", { open: !found.word }, make("summary", {}, rows.length + " numbers"), app.table(heads, rows, ".grid")));
  }
})();
