"""What a rehearsal costs: µs of CPU for each frame (a request or a response), in this process, without Spark.

    python -m tests.lab.bench.whatif_alone [--exchanges N] [--runs N] [--job]

Reading is from the file to packed chunks, rehearsing from there to findings; each is the least of some runs. --job adds
what a frame costs in the whole job, on one core and on all: a run less a run with a tenth of the exchanges, so that
Spark's start and Java's compiler, which both have, are not in it. CPU is that of all processes of the job. (Where cores
are threads of one, each is slower while the other works.)
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from kproxy.lake.whatif.job import CHUNKS, CaptureReader, File
from kproxy.lake.whatif.rehearsal_task import rehearse
from kproxy.tools.rehearse.whatif.exchange import CaptureSummary, unpack_summary
from tests.lab.bench.pipeline import RULES, captured, run

RENAMES = ", ".join(f"topic-{number}: prod.topic-{number}" for number in range(10))
CASES = {
    "opaque": "rules: [{name: groups, kind: rename_group, groups: {g: h}}]",
    "rename on all": f"rules: [{{name: names, kind: rename_topic, topics: {{{RENAMES}}}}}]",
    "error on all": "rules: [{name: e, kind: error, match: {api: Produce}, error: NOT_LEADER_OR_FOLLOWER}]",
    "rules of pipeline.py": RULES,
}
FRAMES = 2
"""Of an exchange."""
ROWS = 64
"""Chunks that are rehearsed at once, as in the job."""


def least(runs: int, work: Callable[[], list[pa.RecordBatch]]) -> tuple[float, list[pa.RecordBatch]]:
    """Seconds of CPU, and what came out."""
    times, out = [], []
    for _ in range(runs):
        began = time.process_time()
        out = work()
        times.append(time.process_time() - began)
    return min(times), out


def chunks_of(batches: list[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], dict[str, CaptureSummary]]:
    """What Spark would shuffle, in its order; and what is told of the capture."""
    table = pa.Table.from_batches(batches)
    told = table.filter(pc.equal(table["what"], "capture")).to_pylist()
    chunks = table.filter(pc.equal(table["what"], "chunk")).select([one.name for one in CHUNKS[1:]])
    ordered = chunks.sort_by([(name, "ascending") for name in ("capture", "connection", "place", "part")])
    return ordered.to_batches(max_chunksize=ROWS), {row["capture"]: unpack_summary(row["packed"]) for row in told}


def alone(capture: Path, exchanges: int, runs: int) -> None:
    for case, rules in CASES.items():
        texts = [("rules.yaml", rules)]
        reader = CaptureReader({"path": "[]", "rules": json.dumps(texts)})
        reading, batches = least(runs, lambda reader=reader: list(reader.read(File(str(capture)))))
        chunks, told = chunks_of(batches)
        run = rehearse(texts, told)
        rehearsing, found = least(runs, lambda run=run, chunks=chunks: list(run(chunks)))
        each = [1e6 * seconds / exchanges / FRAMES for seconds in (reading, rehearsing, reading + rehearsing)]
        rows = sum(batch.num_rows for batch in found)
        print(f"{case:22} reading {each[0]:6.1f}  rehearsing {each[1]:6.1f}  together {each[2]:6.1f} µs, {rows} rows")


def job(folder: Path, exchanges: int) -> None:
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    sizes = exchanges // 10, exchanges
    captures = {number: [folder / f"job-{number}-{part}.pcapng" for part in range(2)] for number in sizes}
    for number, parts in captures.items():
        for one in parts:
            captured(one, number // 2)
    frames = FRAMES * (sizes[1] - sizes[0])
    for master in ("local[1]", "local[*]"):
        few, many = (
            run("rules", "simulate", *captures[number], "--rules", rules, "--lake", folder / "lake", "--master", master)
            for number in sizes
        )
        rate = frames / (many.seconds - few.seconds)
        cpu = many.cpu - few.cpu
        each = 1e6 * cpu / frames
        print(f"the job on {master}: {cpu:.1f} s of CPU, {each:.0f} µs a frame; {rate:,.0f} frames/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--job", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kproxy-whatif-") as name:
        capture = Path(name) / "alone.pcapng"
        captured(capture, options.exchanges)
        alone(capture, options.exchanges, options.runs)
        if options.job:
            job(Path(name), options.exchanges * 20)


if __name__ == "__main__":
    sys.exit(main())
