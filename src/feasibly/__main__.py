"""`python -m feasibly` and the command `feasibly`: signals are heard before anything is imported."""

import os
import signal
import threading
from types import FrameType

SENTENCE = b"interrupted; nothing was left half-written\n"


def _leave(number: int, frame: FrameType | None) -> None:
    """Nothing has begun yet. Importing cannot be undone or trusted when it is cut short, so the process ends here."""
    try:
        os.write(2, SENTENCE)
    finally:
        os._exit(128 + number)


def main() -> None:
    """Run the command line and leave with its status."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _leave)
        signal.signal(signal.SIGTERM, _leave)
    from feasibly.cli import main as run

    run()


if __name__ == "__main__":
    main()
