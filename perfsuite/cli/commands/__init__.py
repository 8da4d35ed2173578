"""One file per subcommand of `perfsuite`."""
