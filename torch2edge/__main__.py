"""python -m torch2edge"""

import sys

from torch2edge.cli import main

sys.exit(main())
