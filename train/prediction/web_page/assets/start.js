// What must work before the page can: this file has no syntax that old browsers lack.
(function () {
  "use strict";
  function say(text) {
    var trouble = document.getElementById("trouble");
    trouble.textContent = text;
    trouble.hidden = false;
    document.body.dataset.state = "trouble";
  }
  if (location.protocol === "file:") {
    say(
      "A browser does not let a page read its own classifier from a file. Serve this folder: run " +
        "“python3 -m http.server” in it, and open http://localhost:8000 in this browser."
    );
  } else if (typeof WebAssembly !== "object") {
    say("This browser cannot compute the classifier: it lacks WebAssembly. Take another browser.");
  } else if (!("noModule" in HTMLScriptElement.prototype) || typeof createImageBitmap !== "function") {
    say("This browser is too old for this page. Take another browser.");
  } else {
    var app = document.createElement("script");
    app.type = "module";
    app.src = "app.js";
    app.onerror = function () {
      say("A part of this page is missing: app.js. Copy the whole folder to the server.");
    };
    document.head.appendChild(app);
  }
})();
