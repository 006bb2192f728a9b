"""Open the session in a folder (made if need be) with a scripted engine: ``run_app.py FOLDER [engine options]``."""

import sys
from pathlib import Path

from core.store import Session
from rlhf_tui.app import PlaygroundApp

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    script = str(Path(__file__).with_name("scripted_engine.py"))
    session = Session.open(folder) if (folder / "session.db").exists() else Session.create(folder, title="first steps")
    with session:
        app = PlaygroundApp(session, device="cpu", engine_command=[sys.executable, script, *sys.argv[2:]])
        app.run()
    sys.exit(app.return_code or 0)
