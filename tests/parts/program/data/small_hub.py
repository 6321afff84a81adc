"""A hub of Hugging Face on this machine, for tests: the few requests that `datasets` makes."""

import contextlib
import hashlib
import http.server
import json
import re
import threading
from pathlib import Path

_COMMIT = "1" * 40
# The data set of a request, and the file, or what is asked of all files.
_FILE = re.compile(r"/datasets/([^/]+/[^/]+)/resolve/[^/]+/(.+)")
_REQUEST = re.compile(r"/api/datasets/([^/]+/[^/?]+)(?:/([a-z-]+))?.*")


class _Handler(http.server.BaseHTTPRequestHandler):
    root: Path

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        of_file, of_all = _FILE.fullmatch(self.path), _REQUEST.fullmatch(self.path)
        name, asked = (of_file or of_all).groups() if of_file or of_all else ("", "")
        folder, headers = self.root / name, {"X-Repo-Commit": _COMMIT}
        if not name or not folder.is_dir():
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"} if name else {})
        elif of_file and not (folder / asked).is_file():
            self._send(404, b"", {**headers, "X-Error-Code": "EntryNotFound"})
        elif of_file:
            content = (folder / asked).read_bytes()
            self._send(200, content, {**headers, "ETag": hashlib.sha256(content).hexdigest()})
        else:
            files = [
                {"type": "file", "oid": "2" * 40, "size": path.stat().st_size, "path": path.name}
                for path in sorted(folder.iterdir())
            ]
            listed = files if asked in ("tree", "paths-info") else {"id": name, "sha": _COMMIT}
            self._send(200, json.dumps(listed).encode(), {})

    do_HEAD = do_POST = do_GET  # noqa: N815 (names of the library)

    def _send(self, status, content, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_arguments):
        pass


@contextlib.contextmanager
def serve(root):
    """Serves a folder `user/name` with the files of each data set, and yields the address."""
    handler = type("Handler", (_Handler,), {"root": root})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        # It looks that often whether it shall stop.
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
