"""The command line over the real engine with a trainer that costs nothing: ``python cli_with_fake_engine.py ARGS``."""

import sys
from pathlib import Path

from rlhf_tui import cli, engine_client
from rlhf_tui.commands import evaluate, frontier, train

if __name__ == "__main__":
    engine = Path(__file__).parents[1] / "core" / "engine" / "fake_trainer.py"
    engine_client.ENGINE_COMMAND = [sys.executable, "-P", str(engine)]
    train.REPORT_COMPLETIONS = 16
    evaluate.PER_PROMPT = {"per_prompt": 4, "reference_per_prompt": 32}
    frontier.PER_PROMPT = {"reference_per_prompt": 32}
    sys.exit(cli.main())
