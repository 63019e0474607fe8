"""A service whose import dies in native code."""

import os
import signal

os.kill(os.getpid(), signal.SIGSEGV)
