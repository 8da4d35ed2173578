"""asv's benchmarks: the gated cases of tests/perf."""
