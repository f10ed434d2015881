"""What making and replaying a pipeline takes of memory: known before, and refused if too much."""

from __future__ import annotations

from tinyckpt.base.errors import OptionError
from tinyckpt.base.units import size_text
from tinyckpt.pipeline.program import Recompute

# What making and replaying takes at most, measured with tracemalloc: for each action its nine bytes
# here and seven columns of 8 at a time; for each kind that there is a table by stage and
# micro-batch; for each stage what it costs and holds by kind; and what replicas have done together.
BYTES_AN_ACTION, BYTES_A_PLACE, BYTES_A_STAGE, BYTES_A_MEETING = 84, 4, 500, 400
MOST_BYTES = 4 * 2**30


def checked_size(
    name: str, recompute: Recompute | None, *, halved: bool = False, **counts: int
) -> None:
    """Raise an OptionError unless a pipeline's numbers are legal and it can be held.

    Args:
        name: of the pipeline.
        recompute: as for ``with_messages``.
        halved: whether backwards are in two halves.
        counts: devices and micro-batches, and chunks if a device has several.
    """
    for what, count in counts.items():
        if type(count) is int and count > MOST_BYTES:  # such numbers may be too long to be told
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
    """Raise an OptionError if a pipeline takes too much memory to make and replay.

    Args:
        what: is to be held.
        actions: of all devices.
        places: stages times micro-batches.
        stages: of all replicas.
        kinds: how many of KINDS there are.
        meetings: how often replicas do something together.
    """
    check_size(
        what,
        BYTES_AN_ACTION * actions
        + BYTES_A_PLACE * (kinds + 2) * places
        + BYTES_A_STAGE * stages
        + BYTES_A_MEETING * meetings,
    )


def check_size(what: str, size: int) -> None:
    """Raise an OptionError if making and replaying something takes too many bytes."""
    if size > MOST_BYTES:
        raise OptionError(
            f"{what} takes about {size_text(size)} to make and replay; at most "
            f"{size_text(MOST_BYTES)} are allowed, so have fewer micro-batches"
        )
