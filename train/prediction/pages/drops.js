// The browser would open a file in place of the page if the file is dropped where none is taken.
["dragover", "drop"].forEach(function (kind) {
  addEventListener(kind, function (event) {
    var data = event.dataTransfer;
    // What takes files has prevented it before.
    if (event.defaultPrevented || Array.prototype.indexOf.call(data.types, "Files") < 0) return;
    event.preventDefault();
    data.dropEffect = "none";
  });
});
