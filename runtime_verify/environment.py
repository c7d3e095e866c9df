"""Where something is measured: versions, device, processor. Neither paths nor the host's name."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import torch

from torchlint import __version__

from .records import Environment

_SECONDS = 10


def describe(device: str, threads: int) -> Environment:
    """This machine, as a device of type "cpu" or "cuda" sees it."""
    on_gpu = device == "cuda"
    processor = _processor()
    return Environment(
        device=device,
        device_name=torch.cuda.get_device_name() if on_gpu else processor,
        torch=str(torch.__version__),
        python=platform.python_version(),
        torchlint=__version__,
        cpu=processor,
        cores=usable_cores(),
        threads=threads,
        platform=f"{platform.system()} {platform.machine()}",
        gpus=torch.cuda.device_count() if on_gpu else 0,
        cuda=torch.version.cuda or "" if on_gpu else "",
        cudnn=str(torch.backends.cudnn.version() or "") if on_gpu else "",  # type: ignore[no-untyped-call]
        driver=_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").partition("\n")[0]
        if on_gpu
        else "",
        commit=_commit(),
    )


def usable_cores() -> int:
    """How many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_memory() -> int:
    """The bytes of memory of this machine, or of the container that this process is in."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30  # Windows has no sysconf: enough for every workload that ships
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(limit).read_text()))
        except (OSError, ValueError):  # there is no such limit, or it is "max"
            continue
    return total


def busyness() -> str:
    """A sentence that says how busy other work keeps this machine; "" where there are processors to spare."""
    if not hasattr(os, "getloadavg"):
        return ""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < cores:
        return ""
    return f"Other work kept this machine busy when the run began (load {load:.1f} on {cores} cores): times are noisy."


def _processor() -> str:
    """The processor's name, such as "AMD EPYC 7763 64-Core Processor"."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    named = _output("sysctl", "-n", "machdep.cpu.brand_string") if platform.system() == "Darwin" else ""
    return named or platform.processor() or platform.machine()


def _commit() -> str:
    """The commit of the checkout that torchlint is imported from, with "+" where tracked files are changed."""
    root = str(Path(__file__).resolve().parent.parent)
    if not _output("git", "-C", root, "ls-files", "--", "runtime_verify/environment.py"):
        return ""
    changed = _output("git", "-C", root, "status", "--porcelain", "--untracked-files=no")
    return _output("git", "-C", root, "rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def _output(*command: str) -> str:
    """What a command prints; "" where there is none or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
