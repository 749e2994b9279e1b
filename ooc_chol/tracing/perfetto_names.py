"""Names of the tracks of a trace, for those that write and read them."""

from __future__ import annotations

#: The track above all others.
RUN = "run"
#: Ends of the names of predictions and of waits.
PREDICTED = ", predicted"
WAITS = ", waits"
#: Tracks with others folded into them, and the line of the budget.
FOLDED_PASSES = "passes beside the run"
DETAILS = "links, copy by copy"
BUDGET = "budget of a device"

#: The viewer shows a description when one asks for it. Those of streams tell those that compute from others.
ABOUT = (
    "The run as a whole; its arguments say what it was. Below it the share of time in which each device computed, what crossed "
    "its links, what was resident, and its streams, with their predictions. The arrow beside a stream opens what it waited for."
)
NO_PREDICTION = " Nothing was predicted, because no rates of this machine were known; `ooc-chol bench rates` measures them."
COMPUTES = "A stream that computes: the device stands still while none of these runs. Empty where nothing runs."
HELPS = "A stream that copies, or helps those that compute. Empty where nothing runs."
COPIES = "GB/s while a copy runs, and 0 between copies."


def track_name(device: str, stream: str, end: str = "") -> str:
    """Name the track of a stream; :func:`stream_of` takes it apart."""
    return f"{device} {stream}{end}"


def stream_of(name: str) -> tuple[str, str, str]:
    """Device, stream and end of the name of a track."""
    stem = name.removesuffix(WAITS)
    stem = stem.removesuffix(PREDICTED)
    device, _, stream = stem.partition(" ")
    return device, stream, name[len(stem) :]
