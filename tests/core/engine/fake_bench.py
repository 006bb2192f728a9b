"""The real engine with a bench of few items, so that it takes seconds."""

import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from core.evaluation import speed, store_growth

    speed.BATCH = 4
    speed.MATMUL_SIZE = 64
    speed.growth = lambda device: iter(())  # type: ignore[assignment,misc]
    real = store_growth.store_growth
    store_growth.store_growth = lambda: real(labels=(2,), points=(200,))  # type: ignore[assignment]
    from core.engine.__main__ import main as engine

    engine()


if __name__ == "__main__":
    main()
