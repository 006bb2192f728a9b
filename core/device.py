"""Which hardware to run on: CUDA → MPS → CPU, decided by measuring one real training step on each.

A GPU can lose on a model this small, and more CPU threads too: two threads on two busy cores wait for each other.
"""

import ctypes
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from core.losses import sft_loss
from core.models.build import build_language_model
from core.models.config import BackboneConfig
from core.sampling import completion_logits, completions_of

MOST_THREADS = 4
WORTH_IT = 1.2  # how much faster more threads, or a GPU, must be to be chosen
REPEATS = 3
MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # mallopt's names for them in glibc's malloc.h


class DeviceError(ValueError):
    """A device that is not there; one line that says which are."""


@dataclass(frozen=True)
class DeviceChoice:
    """Where tensors live, how many CPU threads work, and one line that says why."""

    device: torch.device
    threads: int
    line: str


def available_devices() -> list[str]:
    """The devices that torch can use here, the usually fastest first."""
    found = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    if torch.backends.mps.is_available():
        found.append("mps")
    return [*found, "cpu"]


def usable_cores() -> float:
    """CPU cores that this process may use: its affinity, limited by the cgroup's quota."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else min(cores, int(quota) / int(period))


def keep_freed_memory() -> None:
    """Let glibc keep what tensors free for the next ones; elsewhere nothing happens.

    By default it hands every large tensor back to the system and then pays for fresh, zeroed pages again, in each
    operation of each step: a fifth of an SFT step's time.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, 2**30)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)


def choose_device(wanted: str = "auto", threads: int | None = None) -> DeviceChoice:
    """Choose, and set torch's number of CPU threads; from here on freed memory stays with the process.

    ``wanted``: auto, cpu, cuda, cuda:N or mps. Raises DeviceError when it is not available.
    """
    available = available_devices()
    if wanted == "cuda":
        wanted = "cuda:0"
    if wanted != "auto" and wanted not in available:
        raise DeviceError(f"device {wanted} is not available here; there is {', '.join(available)}")
    keep_freed_memory()
    chosen_threads, why_threads = _choose_threads(threads)
    torch.set_num_threads(chosen_threads)
    plural = "" if chosen_threads == 1 else "s"
    cpu = f"CPU with {chosen_threads} thread{plural} ({why_threads})"
    if wanted != "auto":
        device = torch.device(wanted)
        line = f"{cpu}, as asked for" if wanted == "cpu" else f"{_name(device)}, as asked for"
        return DeviceChoice(device, chosen_threads, line)
    if available == ["cpu"]:
        return DeviceChoice(torch.device("cpu"), chosen_threads, f"{cpu}; no GPU found")
    steps = {name: step_seconds(torch.device(name)) for name in (available[0], "cpu")}
    best = available[0] if steps[available[0]] * WORTH_IT < steps["cpu"] else "cpu"
    compared = (
        f"a step takes {1000 * steps[available[0]]:.0f} ms on {available[0]}, {1000 * steps['cpu']:.0f} ms on the CPU"
    )
    device = torch.device(best)
    return DeviceChoice(device, chosen_threads, f"{_name(device) if best != 'cpu' else cpu}; {compared}")


def _name(device: torch.device) -> str:
    return f"{torch.cuda.get_device_name(device)} ({device})" if device.type == "cuda" else str(device).upper()


def _choose_threads(wanted: int | None) -> tuple[int, str]:
    if wanted is not None:
        return wanted, "as asked for"
    cores = usable_cores()
    most = max(1, min(MOST_THREADS, int(cores) - 1))
    if most == 1:
        return 1, f"{cores:g} usable cores, one left for the screen"
    seconds = {}
    for threads in (1, most):
        torch.set_num_threads(threads)
        seconds[threads] = step_seconds(torch.device("cpu"))
    gain = seconds[1] / seconds[most]
    return (most, f"{gain:.1f} × as fast as 1") if gain >= WORTH_IT else (1, f"{most} are only {gain:.2f} × as fast")


def step_seconds(device: torch.device) -> float:
    """Seconds of one SFT step at the default size (256 completions of 9 letters), the best of three after a warm-up."""
    vocabulary = 30
    model = build_language_model(BackboneConfig(), vocabulary, seed=0).to(device)
    rows = [[4 + (row + column) % 26 for column in range(9)] for row in range(256)]
    batch = completions_of([row[:8] for row in rows], rows, device)
    best = float("inf")
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        sft_loss(completion_logits(model, batch), batch.tokens, batch.mask).backward()
        sum(p.grad.abs().sum() for p in model.parameters() if p.grad is not None).item()  # type: ignore[union-attr]
        best = min(best, time.perf_counter() - start)
    return best
