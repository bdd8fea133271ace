"""Measure the disk under a store, then serve with the I/O backend that was chosen for it."""

import subprocess
import sys
from pathlib import Path

import congreve

store = Path("data/store")
store.mkdir(parents=True)
# As `congreve tune data/store`; the default of --seconds gives steadier figures.
tune = [sys.executable, "-m", "congreve", "tune", str(store), "--seconds", "0.01"]
subprocess.run(tune, check=True)

with congreve.serve("data") as node:
    print(f"log written by: {node.broker.store.backend.name}")
