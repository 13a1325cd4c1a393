"""The loopback Hub's HTTP side: one route per request that the real clients make."""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Iterator
from urllib.parse import parse_qs, unquote, urlsplit

from tests.hub_server.store import HubError, Repository, blob_id

_ROUTES: "list[tuple[str, re.Pattern, str]]" = []


def _route(method: str, pattern: str):
    """Register a handler method for requests whose path matches `pattern` in full."""

    def register(function):
        _ROUTES.append((method, re.compile(pattern), function.__name__))
        return function

    return register


class LoopbackHub:
    """A running Hub; a context manager that stops it.

    `trusted` names the organisations whose kernels load without `trust_remote_code`, and
    `read_only` those in which nobody may create or change anything. With a `write_token` only
    requests that carry it may change anything.
    `repositories` and `requests` (method and path of each, in order) are there to be inspected.
    """

    def __init__(
        self,
        trusted: "tuple[str, ...]" = (),
        read_only: "tuple[str, ...]" = (),
        write_token: "str | None" = None,
    ):
        self.trusted = trusted
        self.read_only = read_only
        self.write_token = write_token
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.hub = self
        # The argument is how often, in seconds, the loop looks whether it should stop.
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "LoopbackHub":
        self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def repository(self, name: str) -> Repository:
        """Return the repository `name` ("org/name"), or refuse as the Hub does."""
        if name not in self.repositories:
            raise HubError(404, "RepoNotFound", "Repository not found")
        return self.repositories[name]

    def check_writable(self, name: str, authorization: str) -> None:
        """Refuse a change to the repository `name` by a request with this Authorization header."""
        if self.write_token and authorization != f"Bearer {self.write_token}":
            raise HubError(401, "", "Invalid username or password.")
        organisation = name.split("/")[0]
        if organisation in self.read_only:
            raise HubError(403, "", f"You don't have the rights to create a kernel under {name!r}")


@contextmanager
def serve(trusted: "tuple[str, ...]" = (), read_only: "tuple[str, ...]" = ()) -> "Iterator[str]":
    """Run a Hub for the length of a `with` block and give its URL."""
    with LoopbackHub(trusted, read_only) as hub:
        yield hub.url


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format, *arguments) -> None:
        """Stay silent; the requests are in `LoopbackHub.requests`."""

    def do_GET(self) -> None:
        self._dispatch("GET")

    def do_HEAD(self) -> None:
        self._dispatch("GET")

    def do_POST(self) -> None:
        self._dispatch("POST")

    def _dispatch(self, method: str) -> None:
        self.hub: LoopbackHub = self.server.hub
        url = urlsplit(self.path)
        self.query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        # Read the body even if nobody asks for it: the connection is used again.
        self.body = self._read_body()
        with self.hub.lock:
            self.hub.requests.append(f"{self.command} {url.path}")
            try:
                for route_method, pattern, name in _ROUTES:
                    match = pattern.fullmatch(url.path)
                    if match and method == route_method:
                        values = {key: unquote(text) for key, text in match.groupdict("").items()}
                        status, headers, content = getattr(self, name)(**values)
                        break
                else:
                    raise HubError(404, "", f"The loopback Hub has no {method} {url.path}")
            except HubError as error:
                status, headers, content = _json(
                    {"error": str(error), **error.details}, error.status
                )
                headers["X-Error-Message"] = str(error)
                if error.code:
                    headers["X-Error-Code"] = error.code
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    @_route("POST", "/api/repos/create")
    def create_repository(self):
        request = json.loads(self.body)
        if request.get("type") != "kernel":
            raise HubError(400, "", "The loopback Hub has repositories of type 'kernel' only")
        name = f"{request.get('organization') or 'user'}/{request['name']}"
        self.hub.check_writable(name, self.headers.get("Authorization", ""))
        url = f"{self.hub.url}/kernels/{name}"
        if name in self.hub.repositories:
            # The client reads the URL from this refusal when it was told that it may exist.
            raise HubError(409, "", "You already created this kernel repo", url=url)
        repository = self.hub.repositories[name] = Repository(name)
        repository.commit("main", {".gitattributes": b"* text=auto\n"}, "initial commit")
        return _json({"url": url, "name": name, "id": name})

    @_route("POST", "/api/validate-yaml")
    def validate_card(self):
        return _json({"errors": [], "warnings": []})

    @_route("GET", "/api/organizations/(?P<name>[^/]+)/overview")
    def organisation(self, name: str):
        known = {repository.split("/")[0] for repository in self.hub.repositories}
        if name not in known.union(self.hub.trusted):
            raise HubError(404, "", "Organization not found")
        trusted = name in self.hub.trusted
        return _json({"name": name, "fullname": name, "trustedKernelPublisher": trusted})

    @_route("GET", "/api/(models|datasets|spaces)/.*")
    def other_types(self):
        raise HubError(404, "RepoNotFound", "Repository not found")

    @_route("GET", "/api/kernels/(?P<name>[^/]+/[^/]+)(/revision/(?P<revision>[^/]+))?")
    def info(self, name: str, revision: str):
        commit = self.hub.repository(name).resolve(revision or "main")
        siblings = [{"rfilename": path} for path in sorted(commit.files)]
        return _json(
            {
                "id": name,
                "author": name.split("/")[0],
                "sha": commit.sha,
                "private": False,
                "gated": False,
                "downloads": 0,
                "likes": 0,
                "siblings": siblings,
            }
        )

    @_route("GET", "/api/kernels/(?P<name>[^/]+/[^/]+)/refs")
    def references(self, name: str):
        branches = [
            {"name": branch, "ref": f"refs/heads/{branch}", "targetCommit": sha}
            for branch, sha in self.hub.repository(name).branches.items()
        ]
        return _json({"branches": branches, "converts": [], "tags": [], "pullRequests": []})

    @_route("POST", "/api/kernels/(?P<name>[^/]+/[^/]+)/branch/(?P<branch>[^/]+)")
    def create_branch(self, name: str, branch: str):
        repository = self.hub.repository(name)
        self.hub.check_writable(name, self.headers.get("Authorization", ""))
        starting_point = json.loads(self.body or b"{}").get("startingPoint", "main")
        repository.create_branch(branch, starting_point)
        return _json({})

    @_route("GET", "/api/kernels/(?P<name>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)(/(?P<folder>.+))?")
    def tree(self, name: str, revision: str, folder: str):
        recursive = self.query.get("recursive", "false").lower() in ("true", "1")
        return _json(self.hub.repository(name).tree(revision, folder, recursive))

    @_route("POST", "/api/kernels/(?P<name>[^/]+/[^/]+)/preupload/(?P<revision>[^/]+)")
    def preupload(self, name: str, revision: str):
        repository = self.hub.repository(name)
        self.hub.check_writable(name, self.headers.get("Authorization", ""))
        files = repository.resolve(revision).files
        answer = []
        for item in json.loads(self.body)["files"]:
            entry = {"path": item["path"], "uploadMode": "regular", "shouldIgnore": False}
            if item["path"] in files:
                # Lets the client leave out what has not changed.
                entry["oid"] = blob_id(files[item["path"]])
            answer.append(entry)
        return _json({"files": answer})

    @_route("POST", "/api/kernels/(?P<name>[^/]+/[^/]+)/commit/(?P<branch>[^/]+)")
    def commit(self, name: str, branch: str):
        repository = self.hub.repository(name)
        self.hub.check_writable(name, self.headers.get("Authorization", ""))
        header, *operations = [json.loads(line) for line in self.body.splitlines() if line]
        commit = repository.apply(branch, operations, header["value"]["summary"])
        url = f"{self.hub.url}/kernels/{name}/commit/{commit.sha}"
        return _json({"success": True, "commitOid": commit.sha, "commitUrl": url})

    @_route("GET", "/kernels/(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
    def download(self, name: str, revision: str, path: str):
        commit = self.hub.repository(name).resolve(revision)
        if path not in commit.files:
            raise HubError(404, "EntryNotFound", f"{path} does not exist on {revision}")
        content = commit.files[path]
        # The client refuses a file whose answer lacks the commit it belongs to.
        headers = {
            "Content-Type": "application/octet-stream",
            "ETag": f'"{blob_id(content)}"',
            "X-Repo-Commit": commit.sha,
        }
        return 200, headers, content


def _json(value, status: int = 200) -> "tuple[int, dict[str, str], bytes]":
    headers = {"Content-Type": "application/json"}
    return status, headers, json.dumps(value).encode()
