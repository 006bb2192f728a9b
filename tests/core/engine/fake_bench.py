"""The real engine with a bench of few items, so that it takes seconds."""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    from core.evaluation import speed, store_growth
    from core.models.config import BackboneConfig

    measure, store = speed.speeds, store_growth.store_growth
    tiny = BackboneConfig(embedding=4, hidden=4, layers=1)
    speed.MATMUL_SIZE, speed.PATIENCE = 64, 0.0

    def speeds(device: torch.device, backbone: BackboneConfig) -> Iterator[speed.Speed]:
        yield from measure(device, tiny, batch=4, pair_batch=4)
        yield speed.Speed(f"a {backbone.kind} was measured", 1.0, "")

    speed.speeds = speeds  # type: ignore[assignment]
    speed.growth = lambda device, kind: iter(())  # type: ignore[assignment,misc]
    store_growth.store_growth = lambda: store(labels=(2,), points=(200,))  # type: ignore[assignment,misc]
    from core.engine.__main__ import main as engine

    engine()


if __name__ == "__main__":
    main()
