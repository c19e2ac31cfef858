"""A Windlass worker in Python's standard library, to read, to copy and to change.

    python3 examples/worker.py [--url http://127.0.0.1:7117] [--queue default]

docs/guide/workers.md explains every call. SIGTERM or SIGINT stops it within --grace seconds, also while the server is away;
a second one ends it at once. A server that wants a token finds it in WINDLASS_TOKEN.
"""

from __future__ import annotations

import argparse, contextlib, http.client, json, logging, os, random, signal, socket, sys, threading, time
import urllib.parse, uuid
from dataclasses import dataclass, field
from typing import Any, Callable

log = logging.getLogger("worker")


@dataclass(eq=False)
class Job:
    """A job that this worker holds."""

    kind: str
    payload: Any
    lease: dict[str, Any]  # job_id and epoch: every write about the job names both.
    execution_key: str  # For systems downstream: one for each try.
    leased_until: float  # By time.monotonic(). Until then nobody else can have the job.
    stop: threading.Event = field(default_factory=threading.Event)  # A handler that takes long looks at it.
    lost: bool = False  # The lease is gone: nothing more is written about this job.


class Failed(Exception):
    """How a handler names its failure. Any other exception is a failure that may be tried again."""

    def __init__(self, code: str, message: str, retryable: bool) -> None:
        super().__init__(message)
        self.code, self.retryable = code, retryable


class Refused(Exception):
    """The call itself is wrong: the same again gets the same answer."""


class GaveUp(Exception):
    """The worker stops, and its time is over before the server answered."""


# The handlers, one for each kind of job. What a handler returns is the result of the job.
def echo(job: Job) -> Any:
    return job.payload


def sleep(job: Job) -> None:
    job.stop.wait(job.payload["seconds"])


def fail(job: Job) -> None:
    raise Failed("ALWAYS_FAILS", f"this was {job.execution_key}", job.payload["retryable"])


HANDLERS: dict[str, Callable[[Job], Any]] = {"echo": echo, "sleep": sleep, "fail": fail}


class Worker:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.lease = options, options.lease_ms / 1000
        self.id = f"py-{uuid.uuid4()}"  # A name of this session, fresh at each start.
        self.held: set[Job] = set()
        self.stopping, self.refused = threading.Event(), False
        self.deadline = float("inf")  # By time.monotonic(): from then on no call is made.
        self.claiming: http.client.HTTPConnection | None = None  # The claim that waits.

    def call(self, path: str, body: dict[str, Any] | None, timeout: float) -> tuple[int, float, Any]:
        """Makes one call: its status, how long the server wants us to wait, and the document."""
        method, text = ("POST", json.dumps({"worker_id": self.id, **body})) if body is not None else ("DELETE", None)
        url = urllib.parse.urlsplit(self.options.url)
        connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        headers = {"Content-Type": "application/json"}
        if token := os.getenv("WINDLASS_TOKEN"):
            headers["Authorization"] = f"Bearer {token}"
        with contextlib.closing(connect(url.netloc, timeout=timeout)) as connection:
            if path == "claims":
                self.claiming = connection
            connection.request(method, f"/api/v1/{path}", text, headers)
            answer = connection.getresponse()
            after = answer.getheader("Retry-After", "")
            return answer.status, float(after) if after.isdigit() else 0.0, json.loads(answer.read())

    def insist(self, path: str, body: dict[str, Any]) -> Any:
        """Makes the same call until it is answered: a claim_id, or epoch and outcome, make it count once."""
        wait = 0.1
        while (left := self.deadline - time.monotonic()) > 0 and not (path == "claims" and self.stopping.is_set()):
            after = 0.0
            try:
                status, after, document = self.call(path, body, min(30.0, left))
                if status < 300 and all(it["ok"] or not it["retryable"] for it in document.get("results", [])):
                    return document
                if 400 <= status < 500 and status not in (408, 429):
                    raise Refused(f"{path}: {status} {document.get('code')}: {document.get('detail')}")
                log.warning("%s: status %s, once more", path, status)
            except (OSError, http.client.HTTPException, ValueError) as lost:
                if not (path == "claims" and self.stopping.is_set()):
                    log.warning("%s: no answer (%r), once more", path, lost)
            # Times a random number, so that a thousand workers do not come back in the same moment.
            self.pause(path, max(after, wait * random.uniform(0.5, 1.0)))
            wait = min(wait * 2, 5.0)
        raise GaveUp(path)

    def pause(self, path: str, wait: float) -> None:
        if path == "claims":
            self.stopping.wait(wait)
        else:
            time.sleep(max(0.0, min(wait, self.deadline - time.monotonic())))

    # A job, in a thread of its own.
    def run(self, job: Job) -> None:
        try:
            self.settle(job, self.execute(job))
        except Exception as error:
            log.warning("%s: its end could not be told: %r", job.lease["job_id"], error)
        finally:
            self.held.discard(job)

    def execute(self, job: Job) -> dict[str, Any]:
        """Runs the handler, and says how it ended."""
        try:
            result = HANDLERS[job.kind](job)
            json.dumps(result)  # What is no JSON fails here, and not on its way.
            return {"outcome": "cancelled"} if job.stop.is_set() else {"outcome": "succeeded", "result": result}
        except Failed as error:
            return failed(error.code, str(error), error.retryable)
        except Exception as error:
            return failed(type(error).__name__, str(error), True)

    def settle(self, job: Job, end: dict[str, Any]) -> None:
        if job.lost:
            return log.warning("%s: nothing is written", job.lease["job_id"])
        told = self.insist("leases/settle", {"leases": [{**job.lease, **end}]})["results"][0]
        if not told["ok"] and told["code"] == "INVALID_INPUT":  # Such as a result that is too long.
            end = failed("BAD_RESULT", told["detail"], False)
            told = self.insist("leases/settle", {"leases": [{**job.lease, **end}]})["results"][0]
        log.info("%s: %s", job.lease["job_id"], told["state"] if told["ok"] else told["code"])

    # The leases, in a thread of its own. Whatever happens in one round, the next one comes.
    def keep_leases(self) -> None:
        while True:
            time.sleep(self.lease / 3)  # Three times in a lease: one call may get lost.
            try:
                self.renew(list(self.held))
            except Exception as error:
                log.warning("leases/renew: %r", error)
            for job in list(self.held):
                if time.monotonic() >= job.leased_until:
                    self.lose(job, "nobody answered before its lease ended")

    def renew(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        body = {"lease_ms": self.options.lease_ms, "leases": [job.lease for job in jobs]}
        sent_at = time.monotonic()
        status, _, answer = self.call("leases/renew", body, self.lease / 3)
        if status >= 300:
            raise Refused(f"{status} {answer.get('code')}")
        for job, result in zip(jobs, answer["results"]):
            if result["ok"]:
                job.leased_until = sent_at + self.lease
                if result["cancel_requested"]:
                    job.stop.set()
            elif not result["retryable"]:
                self.lose(job, result["code"])

    def lose(self, job: Job, why: str) -> None:
        log.warning("%s: not ours any more: %s", job.lease["job_id"], why)
        job.lost = True
        job.stop.set()
        self.held.discard(job)

    # Claims, in a thread of its own, so that the main thread can end the one that waits.
    def take_jobs(self) -> None:
        try:
            while not self.stopping.is_set():
                if (room := self.options.slots - len(self.held)) > 0:
                    self.claim(room)
                else:
                    self.stopping.wait(0.05)
        except GaveUp:
            pass
        except Exception as error:  # Refused: the token, or this program, is wrong.
            log.error("%s", error)
            self.refused = True
            self.stopping.set()

    def claim(self, room: int) -> None:
        wanted = {"queues": [self.options.queue], "kinds": list(HANDLERS), "lease_ms": self.options.lease_ms}
        # Only what can run at once is claimed, and so it starts in the same call.
        claim = {"claim_id": str(uuid.uuid4()), "max": room, "start": True, "wait_ms": 20_000}
        for lease in self.insist("claims", {**claim, **wanted})["leases"]:
            document, until = lease["job"], time.monotonic() + self.lease
            named = {"job_id": document["job_id"], "epoch": lease["epoch"]}
            job = Job(document["kind"], document["payload"], named, lease["execution_key"], until)
            log.info("%s: %s, epoch %s", named["job_id"], job.kind, named["epoch"])
            self.held.add(job)
            threading.Thread(target=self.run, args=[job], daemon=True).start()

    # The main thread: it waits for a signal, and then sees to the end.
    def on_signal(self, number: int, _frame: Any) -> None:
        if self.stopping.is_set():
            os._exit(128 + number)
        self.stopping.set()

    def serve(self) -> int:
        log.info("%s asks %s for %s", self.id, self.options.url, ", ".join(HANDLERS))
        threading.Thread(target=self.keep_leases, daemon=True).start()
        claims = threading.Thread(target=self.take_jobs, daemon=True)
        claims.start()
        while not self.stopping.wait(1.0):
            pass
        self.deadline = time.monotonic() + self.options.grace
        log.info("stopping; %d jobs run", len(self.held))
        farewell = threading.Thread(target=self.say_goodbye, args=[claims], daemon=True)
        farewell.start()
        release_at = self.deadline - min(2.0, self.options.grace / 4)
        while (claims.is_alive() or self.held) and time.monotonic() < release_at:
            self.end_claim()
            time.sleep(0.05)
        self.release(list(self.held))
        farewell.join(max(0.0, self.deadline - time.monotonic()))
        return 1 if self.refused else 0

    def end_claim(self) -> None:
        """Hangs up on the claim that waits. A server that finds nobody there grants nothing, or takes it back."""
        with contextlib.suppress(OSError, AttributeError):
            self.claiming.sock.shutdown(socket.SHUT_RDWR)

    def say_goodbye(self, claims: threading.Thread) -> None:
        """Says that this worker takes no more jobs, after its last claim. It keeps those that it has."""
        claims.join()
        try:  # Once: it is a courtesy, and others find out by themselves.
            self.call(f"workers/{self.id}", None, min(2.0, max(0.1, self.deadline - time.monotonic())))
        except (OSError, http.client.HTTPException, ValueError) as lost:
            log.warning("no goodbye: %r", lost)

    def release(self, jobs: list[Job]) -> None:
        """Gives back what is not done. Another worker takes it at once, and it is no interruption."""
        for job in jobs:
            self.lose(job, "given back")
        try:
            if jobs:
                self.insist("leases/release", {"leases": [job.lease for job in jobs]})
        except (GaveUp, Refused) as error:
            log.warning("not given back, so these leases have to end by themselves: %r", error)


def failed(code: str, message: str, retryable: bool) -> dict[str, Any]:
    return {"outcome": "failed", "error": {"code": code, "message": message, "retryable": retryable}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:7117", help="the server")
    parser.add_argument("--queue", default="default", help="where to take jobs from")
    parser.add_argument("--slots", type=int, default=4, help="how many jobs run at once")
    parser.add_argument("--lease-ms", type=int, default=30_000, help="how long a job is held if nobody renews")
    parser.add_argument("--grace", type=float, default=20.0, help="seconds from the signal to the end")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    worker = Worker(parser.parse_args())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, worker.on_signal)
    sys.exit(worker.serve())
