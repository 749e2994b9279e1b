"""Internals of ``ooc_chol.hardware`` that tests look at."""

from tests.inside import names_of

NAMES = {
    "ooc_chol.hardware.cuda.arena": ("CudaArena",),
    "ooc_chol.hardware.cuda.device": ("CudaDevice", "LIBRARY_BYTES"),
    "ooc_chol.hardware.cuda.locking": ("CudaRegistrar",),
    "ooc_chol.hardware.cuda.pools": ("device_memory",),
    "ooc_chol.hardware.cuda.streams": ("cuda_stream",),
    "ooc_chol.hardware.gpu_facts": ("GpuFacts",),
    "ooc_chol.hardware.host": ("AbortedError", "HostArena", "HostDevice", "HostEvent", "HostStream", "total_host_bytes"),
    "ooc_chol.hardware.kinds": ("AbstractDeviceKind", "CUDA_RESERVE_BYTES", "CudaKind", "HostKind"),
    "ooc_chol.hardware.memory_limits": ("control_groups", "group_limit", "host_limit"),
    "ooc_chol.hardware.rates_file": ("check_writable", "rates_path", "read_rates"),
    "ooc_chol.hardware.registry": (
        "CUDA",
        "HOST",
        "KINDS",
        "default_budget",
        "device_kind",
        "memory_info",
        "open_device",
        "resolve_devices",
    ),
}
MODULES = {
    "host": "ooc_chol.hardware.host",
    "kinds": "ooc_chol.hardware.kinds",
    "pools": "ooc_chol.hardware.cuda.pools",
    "registry": "ooc_chol.hardware.registry",
}

__getattr__ = names_of(__name__, NAMES, MODULES)
