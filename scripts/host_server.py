"""A real ComfyUI server, headless on the CPU, with this pack linked into a scratch folder: for the demo and the tests.

with HostServer(comfyui) as server:
    result = server.run(server.to_api(ui_workflow))
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from typing import IO, Any

import websocket

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACK_NAME = "ComfyUI-DraftTree"
FOLDERS = (
    *("models/checkpoints", "models/diffusion_models", "models/vae", "models/loras", "models/controlnet"),
    *("custom_nodes", "input", "output", "temp", "user"),
)
START_TRIES = 3
GRACE = 8.0  # seconds for the server to end before it is killed

Prompt = dict[str, Any]
OnEvent = Callable[[str, dict[str, Any]], None]
"""Called with every message of the running prompt: its type ("executing", "progress", ...) and its data."""


class HostError(RuntimeError):
    """The server did not start, died or stopped answering; the message ends with the tail of its log."""


class PromptRejected(HostError):
    """The server refused the prompt before running it. `error` and `node_errors` are its own words."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.error: dict[str, Any] = answer.get("error") or {}
        self.node_errors: dict[str, Any] = answer.get("node_errors") or {}
        details = [
            f"node {node} ({entry.get('class_type')}): {error.get('message')}: {error.get('details')}"
            for node, entry in self.node_errors.items()
            for error in entry.get("errors", [])
        ]
        super().__init__("; ".join([str(self.error.get("message", answer)), *details]))


class PromptFailed(HostError):
    """A node raised while the prompt ran. `error` is the server's execution_error message."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.error = error
        node = f"node {error.get('node_id')} ({error.get('node_type')})"
        super().__init__(f"{node}: {error.get('exception_type')}: {str(error.get('exception_message')).strip()}")


@dataclasses.dataclass
class Result:
    """One finished prompt.

    status: "success" or "interrupted". outputs: node id -> what the node put into its `ui`. seconds: node id ->
    wall-clock seconds between the server's messages, only of nodes that ran (cached ones are absent).
    progress: the (node id, value, maximum) messages in order. total: seconds from queueing to the end.
    """

    prompt_id: str
    status: str = "running"
    outputs: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    progress: list[tuple[str, int, int]] = dataclasses.field(default_factory=list)
    total: float = 0.0


class HostServer:
    """Starts on entering, surely stopped on leaving, at interpreter exit and when this process is killed."""

    def __init__(
        self,
        comfyui: pathlib.Path | str,
        pack: pathlib.Path | str = ROOT,
        *,
        arguments: tuple[str, ...] = (),
        python: str = sys.executable,
        start_timeout: float = 180.0,
    ) -> None:
        self.comfyui = pathlib.Path(comfyui)
        self.pack = pathlib.Path(pack)
        self.arguments = arguments
        self.python = python
        self.start_timeout = start_timeout
        self.port = 0
        self.base = pathlib.Path()  # the scratch tree: models, custom_nodes, input, output, user
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._object_info: dict[str, Any] | None = None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy cannot reach loopback

    # Life

    def __enter__(self) -> HostServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until it answers. HostError with the end of the log where it does not."""
        if not (self.comfyui / "main.py").is_file():
            raise HostError(f"{self.comfyui} holds no main.py: it is no ComfyUI folder")
        atexit.register(self.stop)
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="drafttree-host-"))
        try:
            self._lay_out()
            for attempt in range(START_TRIES):
                self._launch()
                if self._wait_until_ready():
                    return
                taken = "address already in use" in self.log_tail(200).lower()
                if not taken or attempt + 1 == START_TRIES:
                    raise HostError(self._with_log("the ComfyUI server ended while starting"))
                self._end_process()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and remove its scratch folder; safe to call at any time, again too."""
        atexit.unregister(self.stop)
        self._end_process()
        if self._log is not None:
            self._log.close()
            self._log = None
        if self.base != pathlib.Path():
            shutil.rmtree(self.base, ignore_errors=True)

    def _lay_out(self) -> None:
        for folder in FOLDERS:
            (self.base / folder).mkdir(parents=True)
        link = self.base / "custom_nodes" / PACK_NAME
        try:
            link.symlink_to(self.pack, target_is_directory=True)
        except OSError:  # Windows without the right to link
            shutil.copytree(
                self.pack, link, ignore=shutil.ignore_patterns(".git", ".venv", ".host", "output", "node_modules")
            )
        for pictures in (self.comfyui / "input", self.pack / "demo" / "input"):
            if pictures.is_dir():
                shutil.copytree(pictures, self.base / "input", dirs_exist_ok=True)

    def _launch(self) -> None:
        self.port = free_port()
        command = [
            *(self.python, str(ROOT / "scripts" / "host_guard.py"), str(self.base)),
            *(self.python, str(self.comfyui / "main.py"), "--cpu", "--listen", "127.0.0.1", "--port", str(self.port)),
            *("--base-directory", str(self.base), "--disable-auto-launch", "--disable-api-nodes"),
            *("--database-url", "sqlite:///:memory:", *self.arguments),
        ]
        # Not PYTHONPATH: the server must see the pack as a user's server does.
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
        environment |= {
            "PYTHONUNBUFFERED": "1",
            "PYTHONIOENCODING": "utf-8",
            "HF_HUB_OFFLINE": "1",
            "DO_NOT_TRACK": "1",
        }
        # Threads that spin while they wait make torch up to 40 times slower when anything else wants the cores.
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        self._log = (self.base / "server.log").open("ab")
        self._process = subprocess.Popen(
            command,
            cwd=self.comfyui,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # ctrl-C reaches us alone; we stop the whole group
        )

    def _wait_until_ready(self) -> bool:
        deadline = time.monotonic() + self.start_timeout
        while time.monotonic() < deadline:
            if not self.alive():
                return False
            try:
                self.get("/system_stats", timeout=5)
                return True
            except (OSError, ValueError):
                time.sleep(0.1)
        raise HostError(self._with_log(f"the ComfyUI server did not answer within {self.start_timeout:.0f} s"))

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for ask in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            try:
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, ask)  # the guard leads the group; the group outlives it if need be
                else:
                    process.terminate()
            except (ProcessLookupError, PermissionError):
                break
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                continue
            if self._group_gone(process.pid):
                break
        if process.stdin is not None:
            process.stdin.close()
        process.wait()

    @staticmethod
    def _group_gone(group: int) -> bool:
        if not hasattr(os, "killpg"):
            return True
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline:
            try:
                os.killpg(group, 0)
            except (ProcessLookupError, PermissionError):
                return True
            time.sleep(0.02)
        return False

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # Talk

    def get(self, path: str, timeout: float = 60) -> Any:
        """The JSON answer of a GET."""
        return self._ask(urllib.request.Request(self._url(path)), timeout)

    def post(self, path: str, body: object, timeout: float = 60) -> Any:
        """The JSON answer of a POST, None where it is empty."""
        data = json.dumps(body).encode()
        return self._ask(
            urllib.request.Request(self._url(path), data=data, headers={"Content-Type": "application/json"}), timeout
        )

    def _url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def _ask(self, request: urllib.request.Request, timeout: float) -> Any:
        with self._opener.open(request, timeout=timeout) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def object_info(self) -> dict[str, Any]:
        """The schema of every node, as the frontend reads it."""
        if self._object_info is None:
            self._object_info = self.get("/object_info")
        return self._object_info

    def to_api(self, workflow: dict[str, Any]) -> Prompt:
        """A workflow file (UI format) as a prompt (API format), as the frontend would queue it."""
        from comfy_cli.workflow_to_api import convert_ui_to_api

        known = self.object_info()
        prompt: Prompt = convert_ui_to_api(workflow, known)
        if unknown := sorted({node["class_type"] for node in prompt.values()} - known.keys()):
            raise HostError(self._with_log(f"the server does not know the nodes {unknown}"))
        return prompt

    def version(self) -> str:
        return host_version(self.comfyui)

    def queue(self, prompt: Prompt, client: str = "") -> str:
        """The id of the queued prompt. PromptRejected where the server finds it invalid."""
        try:
            answer = self.post("/prompt", {"prompt": prompt, "client_id": client})
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 400:
                    raise
                raise PromptRejected(json.loads(error.read())) from None
        # The server runs the valid outputs of a prompt whose other outputs are not; here that is a failure.
        if answer.get("node_errors"):
            self.post("/queue", {"delete": [answer["prompt_id"]]})
            self.post("/interrupt", {"prompt_id": answer["prompt_id"]})
            raise PromptRejected(answer)
        return str(answer["prompt_id"])

    def interrupt(self) -> None:
        """What the cancel button does."""
        self.post("/interrupt", {})

    def history(self, prompt_id: str) -> dict[str, Any]:
        """The finished prompt's record; empty while it runs."""
        found: dict[str, Any] = self.get(f"/history/{prompt_id}").get(prompt_id, {})
        return found

    def run(self, prompt: Prompt, on_event: OnEvent | None = None, timeout: float = 600.0) -> Result:
        """Queue a prompt and wait for its end. PromptRejected, PromptFailed, or HostError after `timeout` seconds."""
        client = uuid.uuid4().hex
        url = f"ws://127.0.0.1:{self.port}/ws?clientId={client}"
        messages = websocket.create_connection(url, timeout=2, http_no_proxy=["127.0.0.1"])
        started = time.perf_counter()
        try:
            result = Result(self.queue(prompt, client))
            self._follow(messages, result, on_event, time.monotonic() + timeout)
        finally:
            messages.close()
        result.total = time.perf_counter() - started
        record = self.history(result.prompt_id)
        result.outputs = record.get("outputs", {})
        return result

    def _follow(self, messages: websocket.WebSocket, result: Result, on_event: OnEvent | None, deadline: float) -> None:
        """Read messages until the prompt has ended; `executing` with no node is the server's last word on it."""
        node, since = None, 0.0
        failure: dict[str, Any] | None = None
        while True:
            if time.monotonic() > deadline:
                self.interrupt()
                raise HostError(self._with_log(f"the prompt {result.prompt_id} did not finish in time"))
            try:
                message = messages.recv()
            except websocket.WebSocketTimeoutException:
                if not self.alive():
                    raise HostError(self._with_log("the ComfyUI server died")) from None
                continue
            except (websocket.WebSocketException, OSError) as error:
                raise HostError(self._with_log(f"the ComfyUI server closed the connection ({error})")) from None
            now = time.perf_counter()
            if not isinstance(message, str):
                continue  # a preview picture
            event = json.loads(message)
            kind, data = event["type"], event.get("data") or {}
            if data.get("prompt_id", result.prompt_id) != result.prompt_id:
                continue
            if on_event is not None:
                on_event(kind, data)
            if kind == "progress":
                result.progress.append((str(data["node"]), data["value"], data["max"]))
            elif kind == "execution_error":
                failure = data
            elif kind == "execution_interrupted":
                result.status = "interrupted"
            if kind in ("executing", "execution_success", "execution_error", "execution_interrupted"):
                if node is not None:
                    result.seconds[node] = result.seconds.get(node, 0.0) + now - since
                node, since = data.get("node") if kind == "executing" else None, now
            if kind == "executing" and data.get("node") is None:
                break
        if failure is not None:
            raise PromptFailed(failure)
        if result.status == "running":
            result.status = "success"

    # Files and words

    def picture(self, entry: dict[str, Any]) -> pathlib.Path:
        """The file of an entry of a node's `images` output."""
        return self.base / entry["type"] / entry.get("subfolder", "") / entry["filename"]

    def log_tail(self, lines: int = 25) -> str:
        file = self.base / "server.log"
        if not file.is_file():
            return ""
        return "\n".join(file.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def _with_log(self, text: str) -> str:
        """The message, the end of the log, and where the whole log is kept."""
        text = f"{text}. The end of its log:\n{self.log_tail()}"
        log = self.base / "server.log"
        if log.is_file():
            with tempfile.NamedTemporaryFile("wb", prefix="drafttree-host-", suffix=".log", delete=False) as kept:
                kept.write(log.read_bytes())
            text += f"\n(all of it: {kept.name})"
        missing = re.findall(r"No module named '([\w.]+)'", text)
        if missing and str(ROOT) not in str(self.comfyui):
            text += f"\nThis ComfyUI needs more packages: install its requirements.txt with {self.python} -m pip."
        return text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def has_seed_fault(comfyui: pathlib.Path | str) -> bool:
    """Whether this host draws the first step's noise on the CPU from the seed of the initial noise (0.3.75 does).

    Releases without the fault add 1 to the seed in `default_noise_sampler`; read, not imported.
    """
    text = (pathlib.Path(comfyui) / "comfy" / "k_diffusion" / "sampling.py").read_text(encoding="utf-8")
    body = text.partition("def default_noise_sampler(")[2].partition("\ndef ")[0].partition("\nclass ")[0]
    return "seed + 1" not in body and "seed += 1" not in body


def host_version(comfyui: pathlib.Path | str) -> str:
    """The version a ComfyUI folder gives itself, "0" where it gives none."""
    file = pathlib.Path(comfyui) / "comfyui_version.py"
    found = re.search(r'__version__ = "([^"]+)"', file.read_text(encoding="utf-8")) if file.is_file() else None
    return found.group(1) if found else "0"
