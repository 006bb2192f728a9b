"""Open the session in a folder (made if need be) in the app: ``run_app.py FOLDER {scripted,real} [engine options]``."""

import sys
import time
from pathlib import Path

from core.store import Session
from rlhf_tui.app import PlaygroundApp

if __name__ == "__main__":
    began = time.monotonic()
    folder = Path(sys.argv[1])
    script = str(Path(__file__).with_name("scripted_engine.py"))
    command = [sys.executable, script, *sys.argv[3:]] if sys.argv[2] == "scripted" else None
    session = Session.open(folder) if (folder / "session.db").exists() else Session.create(folder, title="first steps")
    with session:
        app = PlaygroundApp(session, device="cpu", engine_command=command)
        app.run()
    sys.exit(app.return_code or 0)
