"""A whole Windlass worker in the standard library; docs/guide/workers.md explains each step.
Usage: python3 examples/worker.py [--url http://127.0.0.1:7117] [--queue default]"""
import argparse, contextlib, http.client, json, os, random, signal, threading, time, urllib.request, uuid
LOST = (OSError, http.client.HTTPException, ValueError)  # No answer, a broken one, or one that refuses.

class Failed(Exception):
    """Failed(code, message, retryable): how a handler names its failure. What it returns is the result."""
    error = property(lambda self: dict(zip(("code", "message", "retryable"), self.args)))

def fail(job):
    raise Failed("ALWAYS_FAILS", f"this was {job.execution_key}", job.payload["retryable"])

def sleep(job):
    job.stop.wait(job.payload["seconds"])  # Whatever takes long ends when job.stop is set.

HANDLERS = {"echo": lambda job: job.payload, "sleep": sleep, "fail": fail}  # One for each kind of job.

class Job:
    def __init__(self, lease):
        self.kind, self.payload = lease["job"]["kind"], lease["job"]["payload"]
        self.lease = {"job_id": lease["job"]["job_id"], "epoch": lease["epoch"]}  # Every write names both.
        self.execution_key = lease["execution_key"]  # For systems downstream: one for each try.
        self.stop, self.lost = threading.Event(), False

class Worker:
    def __init__(self, args):
        self.args, self.id = args, f"py-{uuid.uuid4()}"  # A name of this session, fresh at each start.
        self.held, self.stopping = set(), threading.Event()

    def post(self, path, **body):
        token = os.getenv("WINDLASS_TOKEN")  # None is needed where the server serves with --dev.
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        data = json.dumps({"worker_id": self.id, **body}).encode()
        request = urllib.request.Request(f"{self.args.url}/api/v1/{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def insist(self, path, **body):
        """Sends the same until it is answered: a claim_id, or epoch and outcome, make it count once."""
        for wait in (min(0.1 * 2 ** min(tries, 6), 5.0) for tries in range(10**9)):
            try:
                answer = self.post(path, **body)
                if all(it["ok"] or not it["retryable"] for it in answer.get("results", [])):
                    return answer
            except LOST as lost:
                if getattr(lost, "code", 503) < 500 and lost.code not in (408, 429):
                    raise  # The call itself is wrong: the same again gets the same answer.
                print(f"{path}: {lost}; once more", flush=True)
            time.sleep(wait * random.uniform(0.5, 1.0))

    def run(self, job):
        try:
            end = {"outcome": "succeeded", "result": HANDLERS[job.kind](job)}
        except Exception as error:
            unnamed = {"code": type(error).__name__, "message": str(error)}
            end = {"outcome": "failed", "error": getattr(error, "error", unnamed)}
        if not job.lost:  # Who lost the lease writes nothing more: it would be a STALE_ATTEMPT.
            end = {"outcome": "cancelled"} if job.stop.is_set() else end
            self.insist("leases/settle", leases=[{**job.lease, **end}])
        self.held.discard(job)

    def renew(self):
        while not time.sleep(self.args.lease_ms / 3_000):  # Three times in a lease: one may get lost.
            jobs, answer = list(self.held), {"results": []}
            with contextlib.suppress(*LOST):
                leases = [job.lease for job in jobs]
                answer = self.post("leases/renew", lease_ms=self.args.lease_ms, leases=leases)
            for job, result in zip(jobs, answer["results"]):
                job.lost = not result["ok"] and not result["retryable"]
                if job.lost or result.get("cancel_requested"):
                    job.stop.set()

    def serve(self):
        threading.Thread(target=self.renew, daemon=True).start()
        while not self.stopping.is_set():
            if len(self.held) >= self.args.slots:
                time.sleep(0.05)  # Only what can run at once is claimed, and so it starts in the same op.
                continue
            claim = {"claim_id": f"claim_{uuid.uuid4().int % 10**25:026}", "start": True, "wait_ms": 5_000}
            wanted = {"queues": [self.args.queue], "kinds": list(HANDLERS), "lease_ms": self.args.lease_ms}
            for job in map(Job, self.insist("claims", **claim, **wanted)["leases"]):
                self.held.add(job)  # What comes too late to be finished is released at the end.
                threading.Thread(target=self.run, args=[job], daemon=True).start()
        until = time.monotonic() + self.args.grace
        while self.held and time.monotonic() < until:
            time.sleep(0.05)
        self.release(self.held)

    def release(self, jobs):  # Another worker takes them at once; it does not count as an interruption.
        self.insist("leases/release", leases=[job.lease for job in jobs])
options = argparse.ArgumentParser(description="A Windlass worker.")
usual = {"url": "http://127.0.0.1:7117", "queue": "default", "slots": 4, "lease-ms": 30_000, "grace": 20.0}
for name, value in usual.items():
    options.add_argument(f"--{name}", type=type(value), default=value, help=f"{value}, if nothing is said")
worker = Worker(options.parse_args())
signal.signal(signal.SIGTERM, lambda *_: worker.stopping.set())
worker.serve()
