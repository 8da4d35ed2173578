"""Run the commands of docs/mission.md that need a GPU, keep what they print: `python records/outputs.py DIR [NAME...]`.

Every file begins with where it ran, then the command, then its stdout. `perfsuite table docs/mission.md` puts the files
of records/h200/mission into the page.
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

COMMANDS = {
    "doctor": "perfsuite doctor",
    "memory-flash": "perfsuite memory attention --seq-lengths 1024 2048 4096 8192 16384 --heads 16 "
    "--measure cuda_llm_ops:flash_attention",
    "memory-naive": "perfsuite memory attention --seq-lengths 1024 2048 4096 8192 16384 --heads 8 "
    "--measure cuda_llm_ops:naive_attention --algorithm standard --scores-dtype fp32",
    "memory-training": "perfsuite memory training --layers 24 --hidden 1024 --heads 16 --seq 1024 --batch 4 --measure",
    "bench-attention": "perfsuite bench attention --seq-lengths 512 1024 2048 4096 8192 --batch-size 2 --num-heads 8 "
    "--head-dim 64 --dtype fp16 --against sdpa sdpa:flash --seconds 0.1",
    "bench-alignment": "perfsuite bench attention --seq-lengths 2048 --batch-size 16 --num-heads 16 "
    "--head-dim 128 129 --seconds 0.2",
    "bench-gemm": "perfsuite bench gemm --sizes 512x512x512 1024x1024x1024 2048x2048x2048 --dtype fp16 --seconds 0.1",
    "roofline": "perfsuite roofline records/h200/gates.jsonl --measure"
    " | grep -E 'ceil|TB/s|FLOPs/B|4x16x4096x128 fp16|4096x4096x4096 fp16'",
    "regime-self-test": "perfsuite regime --self-test",
    "regime-gemm": "perfsuite regime gemm:8x16384x16384 --candidate cublas",
    "regime-decode": "perfsuite regime attention:32x32/8x1/8192x128 --candidate sdpa",
    "regime-prefill": "perfsuite regime attention:8x16x4096x128 --candidate sdpa",
    "counters-gemm": "perfsuite counters gemm:8x16384x16384 --candidate cublas",
    "counters-decode": "perfsuite counters attention:32x16/16x1/8192x128 --candidate sdpa",
    "traffic-flash": "perfsuite counters attention:8x16x4096x64 --candidate cuda_llm_ops:flash_attention",
    "traffic-math": "perfsuite counters attention:8x16x4096x64 --candidate sdpa:math | tail -1",
    "hierarchy": "perfsuite hierarchy",
    "links": "perfsuite links",
    "trace-attention": "perfsuite trace attention:32x16x4096x128 --candidate sdpa:flash --candidate sdpa:math "
    "--candidate cuda_llm_ops:flash_attention --output attention.json",
    "trace-layer": "perfsuite trace docs.examples.layer:layer",
    "diagnose-script": "perfsuite diagnose docs/examples/train.py",
    "diagnose-attention": "perfsuite diagnose attention:16x16x2048x129 --candidate sdpa",
}


def main(folder: Path, names: list[str]) -> int:
    """Run the named commands, or all; 1 where one could not be run (exit code 2)."""
    where = origin()
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names or list(COMMANDS):
        command = COMMANDS[name]
        program, rest = command.split(" ", 1)
        words = f"{sys.executable} {'' if program == 'python' else '-m perfsuite '}{rest}"
        done = subprocess.run(words, shell=True, stdout=subprocess.PIPE, text=True, check=False)
        print(f"{name}: exit code {done.returncode}", file=sys.stderr)
        if done.returncode == 2:
            failed = 1
            continue
        text = "\n".join(line.rstrip() for line in done.stdout.splitlines())
        (folder / f"{name}.txt").write_text(f"# {where}\n$ {command}\n{text}\n", encoding="utf-8")
    return failed


def origin() -> str:
    """Card, torch, and the commit; where there is none, the time."""
    import torch

    commit = os.environ.get("PERFSUITE_COMMIT")
    if not commit:
        asked = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    cards = torch.cuda.device_count()
    count = "one" if cards == 1 else str(cards)
    state = f"commit {commit[:7]}" if commit else f"working tree of {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return f"{count} {torch.cuda.get_device_name(0)}, torch {torch.__version__}, {state}"


if __name__ == "__main__":
    if unknown := [name for name in sys.argv[2:] if name not in COMMANDS]:
        sys.exit(f"unknown: {', '.join(unknown)}; known are {', '.join(COMMANDS)}")
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
