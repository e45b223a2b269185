"""`python -m batchspec.replay`: the command line, where the `batchspec` script is not on the path."""

import sys

from batchspec.replay.cli import main

sys.exit(main())
