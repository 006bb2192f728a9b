"""The command line over the real engine, with a report of few completions: ``python cli_with_short_report.py ARGS``."""

import sys

from rlhf_tui import cli
from rlhf_tui.commands import train

if __name__ == "__main__":
    train.REPORT_COMPLETIONS = 16
    sys.exit(cli.main())
