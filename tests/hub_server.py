"""A stand-in for the HTTP API of the Hugging Face Hub on loopback: what its client asks for models, kept in memory.

Regular files are sent in the commit, others are uploaded and downloaded as LFS objects with a redirect, as on the Hub.
A user called ``user`` writes with the token ``writer`` and reads with the token ``reader``.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

LFS = (".safetensors", ".png")
TOKENS = ("writer", "reader")
REPOSITORY = r"(?P<repository>[^/]+/[^/]+)"
ROUTES = {
    ("POST", r"/api/repos/create"): "create",
    ("POST", r"/api/validate-yaml"): "validate",
    ("POST", rf"/api/models/{REPOSITORY}/preupload/(?P<revision>.+)"): "preupload",
    ("POST", rf"/api/models/{REPOSITORY}/commit/(?P<revision>.+)"): "commit",
    ("POST", rf"/api/models/{REPOSITORY}/branch/(?P<revision>.+)"): "branch",
    ("POST", rf"/{REPOSITORY}\.git/info/lfs/objects/batch"): "lfs_batch",
    ("POST", r"/lfs/verify"): "lfs_verify",
    ("PUT", r"/lfs/(?P<oid>\w+)"): "lfs_upload",
    ("GET", r"/cdn/(?P<oid>\w+)"): "lfs_download",
    ("GET", rf"/api/models/{REPOSITORY}/revision/(?P<revision>.+)"): "info",
    ("GET", rf"/api/models/{REPOSITORY}/tree/(?P<revision>[^/]+)"): "tree",
    ("GET", rf"/api/models/{REPOSITORY}"): "info",
    ("GET", rf"/{REPOSITORY}/resolve/(?P<revision>[^/]+)/(?P<path>.+)"): "resolve",
}


class Refused(Exception):
    """An answer that is an error, with the header by which the client tells errors apart."""

    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class Repository:
    """Branches and commits; a commit maps paths to contents."""

    private: bool = False
    gated: bool = False
    branches: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def add(self, branch: str, files: dict[str, bytes], message: str) -> str:
        number = str(len(self.commits))
        sha = hashlib.sha1((number + message + "".join(sorted(files))).encode()).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        self.messages.append(message)
        return sha


class HubServer:
    """The state of the stand-in, and the log of its requests."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Answer requests in the block."""
        self._start()
        try:
            yield
        finally:
            self._stop()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Refuse connections in the block; afterwards answer on the same port again."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def _start(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), handler(self))
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def _stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    # Each route: its arguments from the address, the body, and the token. Returns JSON, or bytes with headers.

    def create(self, body: Any, token: str | None) -> Any:
        repository = f"{body['organization'] or 'user'}/{body['name']}"
        self._check_writer(repository, token)
        url = {"url": f"{self.endpoint}/{repository}"}
        if repository in self.repositories:
            return 409, {**url, "error": "You already created this model repo"}
        new = self.repositories[repository] = Repository(private=body.get("visibility") == "private")
        new.add("main", {".gitattributes": b""}, "initial commit")
        return url

    def validate(self, body: Any, token: str | None) -> Any:
        front = re.match(r"---\n(.*?)\n---\n", body["content"], re.DOTALL)
        if front is None or not isinstance(yaml.safe_load(front[1]), dict):
            return 400, {"errors": [{"message": "no metadata"}], "warnings": []}
        return {"errors": [], "warnings": []}

    def preupload(self, repository: str, revision: str, body: Any, token: str | None) -> Any:
        self._check_writer(repository, token)
        files = self._files(repository, revision, token)
        modes = {file["path"]: "lfs" if file["path"].endswith(LFS) else "regular" for file in body["files"]}
        oids = {
            path: git_oid(files[path]) if path in files and mode == "regular" else None for path, mode in modes.items()
        }
        answers = [
            {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oids[path]} for path, mode in modes.items()
        ]
        return {"files": answers}

    def lfs_batch(self, repository: str, body: Any, token: str | None) -> Any:
        self._check_writer(repository, token)
        actions = {
            each["oid"]: {
                "upload": {"href": f"{self.endpoint}/lfs/{each['oid']}"},
                "verify": {"href": f"{self.endpoint}/lfs/verify"},
            }
            for each in body["objects"]
            if each["oid"] not in self.objects
        }
        known = [
            {**each, **({"actions": actions[each["oid"]]} if each["oid"] in actions else {})}
            for each in body["objects"]
        ]
        return {"transfer": "basic", "objects": known}

    def lfs_upload(self, oid: str, body: bytes, token: str | None) -> Any:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refused(400, message="the content is not that of the hash")
        self.objects[oid] = body
        return {}

    def lfs_verify(self, body: Any, token: str | None) -> Any:
        if len(self.objects.get(body["oid"], b"")) != body["size"]:
            raise Refused(404)
        return {}

    def commit(self, repository: str, revision: str, body: bytes, token: str | None) -> Any:
        self._check_writer(repository, token)
        files = dict(self._files(repository, revision, token))
        header, *operations = [json.loads(line) for line in body.splitlines()]
        for operation in operations:
            value = operation["value"]
            lfs = operation["key"] == "lfsFile"
            files[value["path"]] = self.objects[value["oid"]] if lfs else base64.b64decode(value["content"])
        sha = self.repositories[repository].add(revision, files, header["value"]["summary"])
        return {"commitUrl": f"{self.endpoint}/{repository}/commit/{sha}", "commitOid": sha, "success": True}

    def branch(self, repository: str, revision: str, body: Any, token: str | None) -> Any:
        self._check_writer(repository, token)
        branches = self._repository(repository, token).branches
        if revision in branches:
            return 409, {"error": "exists"}
        branches[revision] = branches["main"]
        return {}

    def info(self, repository: str, token: str | None, revision: str = "main") -> Any:
        sha = self._sha(repository, revision, token)
        return {"id": repository, "modelId": repository, "sha": sha, "private": False, "tags": [], "siblings": []}

    def tree(self, repository: str, revision: str, token: str | None) -> Any:
        entries = []
        for path, content in self._files(repository, revision, token).items():
            oid, size = hashlib.sha256(content).hexdigest(), len(content)
            lfs = {"lfs": {"oid": oid, "size": size, "pointerSize": 134}} if path.endswith(LFS) else {}
            entries.append({"type": "file", "path": path, "size": size, "oid": git_oid(content), **lfs})
        return entries

    def resolve(self, repository: str, revision: str, path: str, token: str | None) -> Any:
        files = self._files(repository, revision, token)
        if self.repositories[repository].gated and token != "writer":
            raise Refused(401 if token is None else 403, "GatedRepo", "Access to this model is restricted")
        if path not in files:
            raise Refused(404, "EntryNotFound", "Entry not found")
        content, headers = files[path], {"X-Repo-Commit": self._sha(repository, revision, token)}
        if not path.endswith(LFS):
            return content, {**headers, "ETag": f'"{git_oid(content)}"'}
        oid = hashlib.sha256(content).hexdigest()
        linked = {"X-Linked-ETag": f'"{oid}"', "X-Linked-Size": str(len(content))}
        # Another host, as on the Hub: the client sends it no token.
        return b"", {**headers, **linked, "Location": f"http://localhost:{self.port}/cdn/{oid}"}

    def lfs_download(self, oid: str, token: str | None) -> Any:
        assert token is None
        return self.objects[oid], {"ETag": f'"{oid}"'}

    def _check_writer(self, repository: str, token: str | None) -> None:
        if token not in TOKENS:
            raise Refused(401, message="Invalid username or password.")
        if token != "writer" or not repository.startswith("user/"):
            raise Refused(403, message="You don't have the rights to write to this repository")

    def _repository(self, repository: str, token: str | None) -> Repository:
        found = self.repositories.get(repository)
        if found is None or (found.private and token not in TOKENS):
            raise Refused(401 if token is None else 404, "RepoNotFound", "Repository not found")
        return found

    def _sha(self, repository: str, revision: str, token: str | None) -> str:
        found = self._repository(repository, token)
        sha = found.branches.get(revision, revision)
        if sha not in found.commits:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return sha

    def _files(self, repository: str, revision: str, token: str | None) -> dict[str, bytes]:
        return self.repositories[repository].commits[self._sha(repository, revision, token)]


def git_oid(content: bytes) -> str:
    """The hash by which git names a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    """The request handler of a server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body, path = self._body(), urlsplit(self.path).path
            hub.requests.append(f"{self.command} {path}")
            method = "GET" if self.command == "HEAD" else self.command
            for (verb, pattern), name in ROUTES.items():
                found = re.fullmatch(pattern, path)
                if verb == method and found:
                    return self._call(
                        getattr(hub, name), {key: unquote(v) for key, v in found.groupdict().items()}, body
                    )
            self._send(404, b"{}", {})

        do_GET = do_HEAD = do_POST = do_PUT = answer

        def _call(self, route: Any, arguments: dict[str, str], body: bytes) -> None:
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
            if self.command == "PUT" or "ndjson" in (self.headers.get("Content-Type") or ""):
                arguments["body"] = body  # type: ignore[assignment]
            elif self.command == "POST":
                arguments["body"] = json.loads(body)
            try:
                result = route(**arguments, token=token)
            except Refused as error:
                headers = {"X-Error-Code": error.code, "X-Error-Message": error.message}
                return self._send(error.status, json.dumps({"error": error.message}).encode(), headers)
            if isinstance(result, tuple) and isinstance(result[0], bytes):
                status = 302 if "Location" in result[1] else 200
                return self._send(status, *result)
            status, value = result if isinstance(result, tuple) else (200, result)
            self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            """Print nothing."""

    return Handler
