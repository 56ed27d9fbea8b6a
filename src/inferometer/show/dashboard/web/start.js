/* Starts the view that the page names, after loading the names that every view needs. Polls a server that is gone. */
(function () {
  "use strict";
  var app = window.inferometer;
  function start() {
    return app.data.names().then(function (names) {
      app.names = names;
      return app.views[document.body.dataset.view]();
    }).catch(function (error) {
      app.show(app.make("h1", {}, document.title.split(" · ")[0]), app.failed(error));
      if (error.gone) setTimeout(start, 1000);
    });
  }
  start();
})();
