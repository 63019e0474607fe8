"""What a user writes without torch2edge: the same sample straight through litert_torch.convert.

python benchmarks/bare_convert.py SAMPLE OUT.tflite
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    """Load the sample, convert it, write the file."""
    sample, out = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "samples"))
    import litert_torch

    module, args = import_module(sample).model()
    litert_torch.convert(module, args).export(out)


if __name__ == "__main__":
    main()
