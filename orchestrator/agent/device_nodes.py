"""Which files of /dev a job may open: the table of those that all share, and the nodes of a GPU.

Comes in: the minors of the GPUs of an allocation. Goes out: paths for a unit's DeviceAllow. Called by: scope (when a
unit is made, so that what a driver has brought meanwhile counts), the daemon (minors).

The usual ones (null, zero, full, random, urandom, tty, ptmx and the pseudo terminals) come with DevicePolicy=closed.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

NVIDIA = "/dev/nvidia"
# Patterns of nodes that every job of the node may open, and what for. None of them alone reaches a GPU's memory.
SHARED = (
    ("/dev/nvidiactl", "the driver's control node: CUDA opens it first"),
    ("/dev/nvidia-uvm", "unified memory: CUDA opens it in each context"),
    ("/dev/nvidia-uvm-tools", "unified memory for profilers"),
    ("/dev/nvidia-modeset", "mode setting, opened by Vulkan and by some containers' hooks"),
    ("/dev/nvidia-caps-imex-channels/channel*", "memory exported between nodes of one NVLink domain (IMEX)"),
    ("/dev/nvidia-fs*", "GPUDirect Storage"),
    ("/dev/gdrdrv", "GDRCopy"),
    ("/dev/infiniband/uverbs*", "RDMA verbs: InfiniBand, RoCE, EFA"),
    ("/dev/infiniband/rdma_cm", "RDMA connection manager"),
    ("/dev/xpmem", "memory shared between ranks (MPI)"),
    ("/dev/knem", "copies between ranks (MPI)"),
    ("/dev/fuse", "images of Apptainer and podman, sshfs"),
    ("/dev/net/tun", "the network of a container without root"),
)  # fmt: skip
_DRIVER = "/proc/driver/nvidia/gpus"


def allowed(minors: Iterable[int], extra: Iterable[str] = ()) -> list[str]:
    """Paths of the nodes that are there: the shared ones, those of the GPUs, and `extra` patterns."""
    patterns = [pattern for pattern, _ in SHARED] + [f"{NVIDIA}{minor}" for minor in minors if minor >= 0]
    return [path for pattern in (*patterns, *extra) for path in sorted(glob.glob(pattern))]


def minor_of(pci: str, driver: str = _DRIVER) -> int:
    """The number of a GPU's node /dev/nvidiaN, by its PCI address as NVML writes it; -1 where the driver says none.

    NVML writes the domain with eight digits, the driver's folder has four.
    """
    domain, _, rest = pci.partition(":")
    folder = f"{domain[-4:]}:{rest}".lower()
    try:
        with open(os.path.join(driver, folder, "information"), encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == "Device Minor":
                    return int(value)
    except (OSError, ValueError):
        pass
    return -1
