"""Memory guard of the pipeline simulator: refuses pipelines that might need more than 4 GiB.

An upper bound is computed before anything is built: of the host memory that building and replaying
the list of actions takes, not of the memory of the devices that are simulated.
"""

from __future__ import annotations

from tinyckpt.base.errors import OptionError
from tinyckpt.base.units import size_text
from tinyckpt.pipeline.program import Recompute

# Upper bounds in bytes, measured with tracemalloc: per action its nine bytes and seven columns of 8
# at a time; per kind of action one int32 table by stage and micro-batch; per stage its costs and
# memory by kind; per collective the record of who has arrived.
BYTES_AN_ACTION, BYTES_A_PLACE, BYTES_A_STAGE, BYTES_A_MEETING = 84, 4, 500, 400
MOST_BYTES = 4 * 2**30


def check_counts(
    name: str, recompute: Recompute | None, *, halved: bool = False, **counts: int
) -> None:
    """Raise an OptionError unless a pipeline's counts are legal and it fits into memory.

    Args:
        name: of the pipeline.
        recompute: as for ``with_messages``.
        halved: whether backwards are split into that of inputs and that of weights.
        counts: devices, micro-batches, and chunks (stages per device) if a device has several.
    """
    for what, count in counts.items():
        if type(count) is int and count > MOST_BYTES:  # Python refuses to print very long integers
            raise OptionError(f"{name}: more than {MOST_BYTES:,} {what.replace('_', ' ')}")
        if type(count) is not int or count < 1:
            raise OptionError(
                f"{name}: {what.replace('_', '-')}={count!r:.80}; it must be an integer of 1 or "
                "more"
            )
    stages = counts["devices"] * counts.get("chunks", 1)
    each = 2 + halved + (recompute is not None)
    messages = 4 * (stages - 1) if counts["devices"] > 1 else 0
    actions = counts["micro_batches"] * (stages * each + messages) + stages
    asked = " x ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items())
    check_bytes(f"{name} of {asked}", actions, counts["micro_batches"] * stages, stages, each + 4)


def check_bytes(
    what: str, actions: int, places: int, stages: int, kinds: int, meetings: int = 0
) -> None:
    """Raise an OptionError if a pipeline takes too much memory to build and replay.

    Args:
        what: description of the pipeline, for the error.
        actions: number of actions of all devices.
        places: stages times micro-batches.
        stages: of all replicas.
        kinds: number of distinct KINDS.
        meetings: number of collectives of one replica.
    """
    check_size(
        what,
        BYTES_AN_ACTION * actions
        + BYTES_A_PLACE * (kinds + 2) * places
        + BYTES_A_STAGE * stages
        + BYTES_A_MEETING * meetings,
    )


def check_size(what: str, size: int) -> None:
    """Raise an OptionError if a size in bytes exceeds ``MOST_BYTES``."""
    if size > MOST_BYTES:
        raise OptionError(
            f"{what} takes about {size_text(size)} to build and replay, more than the limit of "
            f"{size_text(MOST_BYTES)}; use fewer micro-batches"
        )
