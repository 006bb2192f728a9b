"""The real engine with a bench of few items, so that it takes seconds."""

import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from core.evaluation import speed, store_growth
    from core.models.config import BackboneConfig

    measure, store = speed.speeds, store_growth.store_growth
    tiny = BackboneConfig(embedding=4, hidden=4, layers=1)
    speed.MATMUL_SIZE, speed.PATIENCE = 64, 0.0
    speed.speeds = lambda device, backbone: measure(device, tiny, batch=4, pair_batch=4)  # type: ignore[assignment,misc]
    speed.growth = lambda device, kind: iter(())  # type: ignore[assignment,misc]
    store_growth.store_growth = lambda: store(labels=(2,), points=(200,))  # type: ignore[assignment,misc]
    from core.engine.__main__ import main as engine

    engine()


if __name__ == "__main__":
    main()
