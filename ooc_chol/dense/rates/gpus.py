"""Peak rates of GPUs: vendors' data sheets, and for other models the driver's facts. Nothing here was measured."""

from __future__ import annotations

from dataclasses import dataclass

from ooc_chol.hardware.gpu_facts import GpuFacts


@dataclass(frozen=True)
class Ceilings:
    """Most operations and bytes per second of one GPU, as its vendor states them: dense products, one direction of each link."""

    fp64: float  #: Flops per second in FP64, on tensor cores where it has them
    fp32: float  #: Flops per second in FP32, which tensor cores do not have
    int8: float  #: Operations per second of INT8 products with INT32 accumulation
    fp16: float  #: Flops per second of FP16 products with FP32 accumulation
    memory: float  #: Bytes per second of its own memory
    link: float  #: Bytes per second to and from the host
    peer: float | None  #: Bytes per second to and from other GPUs; None where these are reached over the host's link
    processors: int  #: Multiprocessors


_PCIE4, _PCIE5, _NVLINK_C2C = 32e9, 64e9, 450e9

#: By the model name that the driver gives. Source: NVIDIA's data sheets of the H200, H100, GH200, A100, A30 and HGX B200, their
#: figures with sparsity halved, NVLink's per direction. Other models, GeForce and RTX among them, follow from :data:`_PER_CLOCK`.
DATA_SHEETS = {
    "NVIDIA H200": Ceilings(67e12, 67e12, 1979e12, 990e12, 4.8e12, _PCIE5, 450e9, 132),
    "NVIDIA H200 NVL": Ceilings(60e12, 60e12, 1671e12, 836e12, 4.8e12, _PCIE5, 450e9, 132),
    "NVIDIA H100 80GB HBM3": Ceilings(67e12, 67e12, 1979e12, 990e12, 3.35e12, _PCIE5, 450e9, 132),
    "NVIDIA H100 NVL": Ceilings(60e12, 60e12, 1671e12, 836e12, 3.9e12, _PCIE5, 300e9, 132),
    "NVIDIA H100 PCIe": Ceilings(51e12, 51e12, 1513e12, 756e12, 2.0e12, _PCIE5, 300e9, 114),
    "NVIDIA GH200 480GB": Ceilings(67e12, 67e12, 1979e12, 990e12, 4.0e12, _NVLINK_C2C, 450e9, 132),
    "NVIDIA A100-SXM4-40GB": Ceilings(19.5e12, 19.5e12, 624e12, 312e12, 1.555e12, _PCIE4, 300e9, 108),
    "NVIDIA A100-SXM4-80GB": Ceilings(19.5e12, 19.5e12, 624e12, 312e12, 2.039e12, _PCIE4, 300e9, 108),
    "NVIDIA A100-PCIE-40GB": Ceilings(19.5e12, 19.5e12, 624e12, 312e12, 1.555e12, _PCIE4, None, 108),
    "NVIDIA A100 80GB PCIe": Ceilings(19.5e12, 19.5e12, 624e12, 312e12, 1.935e12, _PCIE4, None, 108),
    "NVIDIA A30": Ceilings(10.3e12, 10.3e12, 330e12, 165e12, 0.933e12, _PCIE4, None, 56),
    "NVIDIA B200": Ceilings(37e12, 75e12, 4500e12, 2250e12, 7.7e12, _PCIE5, 900e9, 148),
}

#: By compute capability: operations of a multiprocessor in a clock, in FP64, FP32, INT8 and FP16, and bytes per second of the
#: host's link. Source: data sheets over multiprocessors and boost clock; of RTX cards the slower GeForce ones in FP16.
_PER_CLOCK: dict[tuple[int, int], tuple[float, float, float, float, float]] = {
    (8, 0): (128, 128, 4096, 2048, _PCIE4),
    (8, 6): (4, 256, 2048, 512, _PCIE4),
    (8, 9): (4, 256, 2048, 512, _PCIE4),
    (9, 0): (256, 256, 8192, 4096, _PCIE5),
    (10, 0): (128, 256, 16384, 8192, _PCIE5),
    (12, 0): (4, 256, 2048, 512, _PCIE5),
}
#: Compute capabilities of which rates are known, whatever the model.
CAPABILITIES = tuple(_PER_CLOCK)


def ceilings_of(facts: GpuFacts) -> Ceilings | None:
    """Ceilings of a GPU: of its model, else by compute capability, multiprocessors, clock and bus; None where none are known."""
    if (sheet := DATA_SHEETS.get(facts.model)) is not None:
        return sheet
    in_a_clock = _PER_CLOCK.get(facts.capability)
    clocks, memory = facts.processors * facts.clock_hz, facts.memory_bytes_per_second
    if in_a_clock is None or not clocks or not memory:
        return None
    fp64, fp32, int8, fp16, link = in_a_clock
    of_floats = clocks * fp64, clocks * fp32
    return Ceilings(*of_floats, clocks * int8, clocks * fp16, memory, link, None, facts.processors)
