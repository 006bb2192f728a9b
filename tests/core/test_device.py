"""Choosing a device, with measurements and hardware that are made up where they decide."""

import builtins
import pathlib

import pytest
import torch

from core import device
from core.device import DeviceError, available_devices, choose_device, step_seconds, usable_cores


@pytest.fixture(autouse=True)
def threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def machine(monkeypatch):
    """A machine with given devices, cores, and seconds a step takes by (device, threads)."""

    def build(devices: list[str], cores: float, seconds: dict[object, float]) -> list[tuple[str, int]]:
        measured = []

        def measure(where: torch.device) -> float:
            measured.append((str(where), torch.get_num_threads()))
            if str(where) == "cpu":
                return seconds[torch.get_num_threads()]
            return seconds[str(where)]

        monkeypatch.setattr(device, "available_devices", lambda: devices)
        monkeypatch.setattr(device, "usable_cores", lambda: cores)
        monkeypatch.setattr(device, "step_seconds", measure)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "Toy GPU")
        return measured

    return build


def test_the_cpu_is_always_there():
    assert available_devices()[-1] == "cpu"


def test_a_device_that_is_not_there_is_refused_with_those_that_are(machine):
    machine(["cpu"], 1, {})
    for wanted, shown in (("cuda", "cuda:0"), ("cuda:3", "cuda:3"), ("mps", "mps"), ("gpu", "gpu")):
        with pytest.raises(DeviceError, match=f"^device {shown} is not available here; there is cpu$"):
            choose_device(wanted, threads=1)


def test_cpu_as_asked_for(machine):
    machine(["cuda:0", "cpu"], 1, {})
    found = choose_device("cpu", threads=1)
    assert (found.device, found.threads) == (torch.device("cpu"), 1)
    assert found.line == "CPU with 1 thread (as asked for), as asked for"
    assert torch.get_num_threads() == 1


def test_a_gpu_as_asked_for_is_taken_unmeasured(machine):
    measured = machine(["cuda:0", "cuda:1", "cpu"], 1, {})
    assert choose_device("cuda", threads=1).device == torch.device("cuda:0")
    found = choose_device("cuda:1", threads=1)
    assert (found.device, found.line) == (torch.device("cuda:1"), "Toy GPU (cuda:1), as asked for")
    assert measured == []


@pytest.mark.parametrize(("gpu", "chosen"), [(0.010, "cuda:0"), (0.019, "cpu"), (0.050, "cpu")])
def test_a_gpu_must_be_clearly_faster(machine, gpu, chosen):
    """By a fifth: 10 ms against 20 ms is, 19 ms is not."""
    machine(["cuda:0", "cpu"], 1, {"cuda:0": gpu, 1: 0.020})
    found = choose_device("auto", threads=1)
    assert found.device == torch.device(chosen)
    assert found.line.endswith(f"; a step takes {1000 * gpu:.0f} ms on cuda:0, 20 ms on the CPU")
    assert found.line.startswith("Toy GPU (cuda:0)" if chosen == "cuda:0" else "CPU with 1 thread")


def test_without_a_gpu_nothing_is_compared(machine):
    machine(["cpu"], 1, {})
    assert choose_device("auto").line == "CPU with 1 thread (1 usable cores, one left for the screen); no GPU found"


@pytest.mark.parametrize(
    ("cores", "seconds", "threads"),
    [
        (2, {}, 1),  # one is left for the screen
        (2.5, {}, 1),
        (3, {1: 0.030, 2: 0.015}, 2),
        (3, {1: 0.030, 2: 0.028}, 1),  # they wait for each other
        (64, {1: 0.040, 4: 0.010}, 4),  # no more than four
        (64, {1: 0.010, 4: 0.040}, 1),
        (0.5, {}, 1),
    ],
)
def test_threads_are_chosen_by_measuring(machine, cores, seconds, threads):
    measured = machine(["cpu"], cores, seconds)
    found = choose_device("auto")
    assert found.threads == torch.get_num_threads() == threads
    assert {count for _, count in measured} == set(seconds)


def test_threads_as_asked_for_are_not_measured(machine):
    measured = machine(["cpu"], 64, {})
    assert choose_device("auto", threads=3).threads == torch.get_num_threads() == 3
    assert measured == []


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 8.0), ("150000 100000", 1.5), ("9900000 100000", 8.0), ("nonsense", 8.0)]
)
def test_cores_are_those_of_the_affinity_within_the_quota(monkeypatch, quota, cores):
    monkeypatch.setattr(device.os, "sched_getaffinity", lambda _pid: set(range(8)), raising=False)
    monkeypatch.setattr(pathlib.Path, "read_text", lambda _path, _encoding: quota)
    assert usable_cores() == cores


def test_cores_without_a_cgroup(monkeypatch):
    def missing(_path, _encoding):
        raise builtins.FileNotFoundError

    monkeypatch.setattr(device.os, "sched_getaffinity", lambda _pid: {0, 5}, raising=False)
    monkeypatch.setattr(pathlib.Path, "read_text", missing)
    assert usable_cores() == 2.0


def test_a_step_takes_time_and_leaves_torchs_generator_alone(monkeypatch):
    monkeypatch.setattr(device, "REPEATS", 1)
    before = torch.get_rng_state()
    assert 0 < step_seconds(torch.device("cpu")) < 60
    assert torch.equal(torch.get_rng_state(), before)
