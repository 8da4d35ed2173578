"""asv's benchmarks of this repository: the checkout's own perfsuite measures, and its kernels lie out of the way."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from perfsuite.cli.asv_benchmarks import benchmarks

globals().update(benchmarks(__file__, portable_tests="tests/perf --ignore=tests/perf/hopper", own=True))
