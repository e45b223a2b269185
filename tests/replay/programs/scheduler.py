"""A scheduler that answers JSON lines, and an example of how one is written: `batchspec conform --command`.

Nothing of batchspec is needed here; any language will do. Requests run in the order of arrival, whole
prompts, at most `max_seqs` at once; each holds the blocks of its longest possible life from the start.

    batchspec conform --command "python3 scheduler.py" --profile orca
"""

import json
import sys


class Scheduler:
    """One run: a queue, the requests that run, and the blocks that are left."""

    def __init__(self, limits):
        self.seats = limits["max_seqs"]
        self.budget = limits["token_budget"]
        self.block_size = limits["block_size"]
        self.total = self.free = limits["kv_blocks"]
        self.longest = limits.get("max_model_len", self.total * self.block_size)
        self.queue = []
        self.running = {}

    def blocks_of(self, request):
        return -(-(len(request["prompt"]) + request["max_tokens"]) // self.block_size)

    def add(self, request):
        prompt = len(request["prompt"])
        names = {other["id"] for other in self.queue} | set(self.running)
        if request["id"] in names or prompt < 1 or request["max_tokens"] < 1:
            return {"refused": "error"}
        if self.blocks_of(request) > self.total or prompt > self.budget or prompt >= self.longest:
            return {"refused": "too_long"}
        self.queue.append({**request, "outputs": 0})
        return {}

    def abort(self, name):
        request = self.running.get(name)
        if request is None:
            request = next(other for other in self.queue if other["id"] == name)
            self.queue.remove(request)
        else:
            self.leave(request)
        return {"rows": [self.end("abort", request, "client")]}

    def plan(self):
        rows = []
        left = self.budget
        for name in self.running:
            rows.append(
                {"event": "schedule", "request": name, "tokens": 1, "blocks": self.running[name]["held"]}
            )
            left -= 1
        while self.queue and len(self.running) < self.seats:
            request = self.queue[0]
            need, tokens = self.blocks_of(request), len(request["prompt"])
            if need > self.free or tokens > left:
                break
            self.queue.pop(0)
            self.free -= need
            left -= tokens
            request["held"] = need
            self.running[request["id"]] = request
            rows.append({"event": "admit", "request": request["id"], "blocks": need})
            rows.append({"event": "schedule", "request": request["id"], "tokens": tokens, "blocks": need})
        return {"rows": rows, **self.counters()}

    def commit(self, tokens):
        rows = []
        for name, emitted in tokens.items():
            request = self.running.get(name)
            if request is None:
                continue  # it was cancelled while the pass ran
            request["outputs"] += len(emitted)
            if request["outputs"] == request["max_tokens"]:
                reason = "length"
            elif request["stop_token"] in emitted:
                reason = "stop"
            else:
                continue
            self.leave(request)
            rows.append(self.end("finish", request, reason))
        return {"rows": rows, **self.counters()}

    def leave(self, request):
        del self.running[request["id"]]
        self.free += request["held"]

    def end(self, event, request, reason):
        return {
            "event": event,
            "request": request["id"],
            "reason": reason,
            "output_tokens": request["outputs"],
            "blocks": 0,
        }

    def counters(self):
        return {"waiting": len(self.queue), "running": len(self.running), "free_blocks": self.free}


def main():
    """Answer each line with a line, until there are no more."""
    scheduler = None
    for line in sys.stdin:
        call = json.loads(line)
        kind = call["call"]
        if kind == "hello":
            scheduler = Scheduler(call["profile"]["limits"])
            answer = {"capabilities": {"name": "json example", "version": "1", "blocks": "counts"}}
        elif kind == "add":
            answer = scheduler.add(call["request"])
        elif kind == "abort":
            answer = scheduler.abort(call["request"])
        elif kind == "plan":
            answer = scheduler.plan()
        elif kind == "commit":
            answer = scheduler.commit(call["tokens"])
        else:
            answer = {}
        print(json.dumps(answer), flush=True)


main()
