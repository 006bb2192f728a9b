"""The bench as a job of the engine: one event for each figure."""

from collections.abc import Callable, Generator

import torch

from core.config import make
from core.engine.protocol import Acknowledged, Bench, BenchLine, Event
from core.models.config import BackboneConfig


def bench(command: Bench, device: torch.device, emit: Callable[[Event], None]) -> Generator[None, None, Event]:
    """Measure, and say each figure as soon as it is known; yields between them. Raises ConfigError."""
    # The bench brings every trainer along, which an engine needs one by one and late.
    from core.evaluation.speed import growth, speeds
    from core.evaluation.store_growth import store_growth

    backbone = make(BackboneConfig, command.backbone)
    stages = [speeds(device, backbone)] + ([growth(device, backbone.kind), store_growth()] if command.growth else [])
    for stage in stages:
        for each in stage:
            emit(BenchLine(name=each.name, rate=each.rate, unit=each.unit, share=each.share))
            yield
    return Acknowledged(id=command.id)
