"""Everything that talks to pytest: options, markers, fixtures, gates, the run and its exit code."""
