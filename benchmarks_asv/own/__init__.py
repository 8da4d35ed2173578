"""asv's benchmarks of perfsuite itself; asv.conf.json in the folder above measures kernels."""
