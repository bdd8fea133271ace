"""``python -m congreve.console.loadgen``: the load generator with its own command line."""

import sys

from congreve.console.loadgen.program import run

sys.exit(run(["loadgen", *sys.argv[1:]]))
