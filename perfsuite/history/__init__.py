"""History: comparison of commits, records as asv's series, and regressions along the commits."""
