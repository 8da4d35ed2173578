"""`python -m perfsuite` is the `perfsuite` command."""

from __future__ import annotations

import sys

from perfsuite.cli.main import main

sys.exit(main())
