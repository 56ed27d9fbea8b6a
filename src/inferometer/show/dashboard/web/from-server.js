/* The data source of the dashboard: its API. */
(function () {
  "use strict";
  var app = window.inferometer = window.inferometer || {};
  /* The server answers pages with the status in a header, because the page shows errors itself, and browsers would also
     log them to the console. */
  function answer(response) {
    var status = Number(response.headers.get("X-Inferometer-Status")) || response.status;
    app.gone(false);
    return response.json().catch(function () { return { error: response.status + " " + response.statusText }; })
      .then(function (content) {
        if (status < 400) return content;
        throw Object.assign(new Error(content.error || "the server answered " + status), { hint: content.hint });
      });
  }
  function gone() {
    app.gone(true);
    throw Object.assign(new Error("the dashboard does not answer"), { hint: "is it still running? The page keeps trying.", gone: true });
  }
  /* The token is no longer valid, for instance after a restart: go to the login form. */
  function login(response) {
    if (response.status === 401) { location.reload(); return new Promise(function () {}); }
    return response;
  }
  function ask(path, query) {
    var params = new URLSearchParams();
    Object.entries(query || {}).forEach(function (pair) {
      [].concat(pair[1]).forEach(function (value) { if (value !== null && value !== undefined && value !== "") params.append(pair[0], value); });
    });
    var text = params.toString();
    return fetch("api/" + path + (text ? "?" + text : ""), { headers: { "X-Inferometer-Page": "1" } }).catch(gone).then(login).then(answer);
  }
  function change(method, path, body) {
    var headers = { "X-Inferometer": "1", "X-Inferometer-Page": "1", "Content-Type": "application/json" };
    return fetch("api/" + path, { method: method, headers: headers, body: body ? JSON.stringify(body) : undefined }).catch(gone).then(answer);
  }
  var id = encodeURIComponent;
  app.data = {
    names: function () { return ask("names"); },
    overview: function () { return ask("overview"); },
    explore: function (query) { return ask("explore", query); },
    runs: function (query) { return ask("runs", query); },
    run: function (run) { return ask("runs/" + id(run)); },
    charts: function (run) { return ask("runs/" + id(run) + "/charts"); },
    live: function (run) { return ask("runs/" + id(run) + "/live"); },
    file: function (run, name) { return "api/runs/" + id(run) + "/files/" + id(name); },
    compare: function (query) { return ask("compare", query); },
    histories: function () { return ask("histories"); },
    history: function (family, measures) { return ask("histories/" + id(family), { measures: measures.join(",") }); },
    tradeOffs: function (family) { return ask("histories/" + id(family) + "/trade-offs"); },
    experiments: function () { return ask("experiments"); },
    experiment: function (name) { return ask("experiments/" + id(name)); },
    change: change
  };
})();
