"""Safe unpickler: an interpreter of pickle opcodes for plain data, which executes no code.

In: the bytes of an untrusted file. Out: dicts, lists, tuples, texts, numbers, True, False and None.
A pickle is a program for a stack machine; this interpreter has the opcodes that construct data, of
protocols 2 to 5, and none of those that import, call or build: a file with one is refused at that
byte. The number of values and the height of the stack are bounded; a text takes at most a small
multiple of its encoded bytes.

Source: ``pickletools`` of the standard library, which describes every opcode. The lab page has the
same interpreter in viz/lab/assets/pickles.js, with the same errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from tinyckpt.base.errors import FormatError

# Values that one file may create, of at most about a hundred bytes each: three gigabytes of Python
# objects, plus long texts. A memo entry counts as two.
MOST_VALUES = 30_000_000
MOST_STACKED = 100_000  # height of the stack, in values: picklers push a thousand per batch
# Open marks. They do not bound nesting: short tuples and appended items nest without a mark, as
# deep as a file is long; no reader of the data recurses.
MOST_OPEN = 1_000
OF_MEMO = 2  # values that a memo entry counts as, for its memory
LONGEST_NUMBER = 8  # bytes of an integer: an address or a time in microseconds
PROTOCOLS = (2, 3, 4, 5)
STOP = 0x2E
# Opcodes that import, call or build Python objects, or ask the unpickler for one.
CODE = {
    0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x52: "REDUCE", 0x62: "BUILD", 0x69: "INST", 0x6F: "OBJ",
    0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x50: "PERSID", 0x51: "BINPERSID", 0x82: "EXT1",
    0x83: "EXT2", 0x84: "EXT4",
}  # fmt: skip


def read_pickle(content: bytes, path: object) -> Any:
    """Unpickle plain data; ``path`` names the file in errors.

    Raises:
        FormatError: if it is cut short or damaged, or asks for anything but plain data; says at
            which byte.
    """
    return PickleMachine(content, path).run()


class PickleMachine:
    """Stack machine for a pickle's opcodes: stack, marks and memo."""

    __slots__ = ("at", "content", "made", "memo", "open", "path", "stack")

    def __init__(self, content: bytes, path: object) -> None:
        self.content, self.path = content, path
        self.at = 0
        self.made = 0
        self.stack: list[Any] = []
        self.open: list[int] = []  # how high the stack was at each mark
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Execute the opcodes up to STOP; return the one value left on the stack."""
        content, stack, size = self.content, self.stack, len(self.content)
        while self.at < size:
            code = content[self.at]
            if code == STOP:
                if len(stack) != 1 or self.open:
                    self.fail(f"it ends with {len(stack)} values instead of one")
                return stack[0]
            action = ACTIONS.get(code)
            if action is None:
                self.refuse(code)
            self.at += 1
            action(self)
        raise FormatError(f"{self.path}: the pickle has no end; was the file cut short?")

    def fail(self, problem: str) -> NoReturn:
        """Raise a FormatError at the present byte."""
        raise FormatError(f"{self.path}: byte {self.at}: {problem}")

    def refuse(self, code: int) -> NoReturn:
        """Raise the FormatError of an unsupported opcode."""
        if code in CODE:
            self.fail(
                f"{CODE[code]} would load or call code; legal is plain data alone, and nothing "
                "of the file was executed"
            )
        self.fail(f"{code:#04x} is no instruction of plain data in a pickle of protocol 2 to 5")

    # Bytes ------------------------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        """Read the next bytes."""
        end = self.at + count
        if end > len(self.content):
            self.fail("more bytes were to come; was the file cut short?")
        taken = self.content[self.at : end]
        self.at = end
        return taken

    def number(self, count: int, signed: bool = False) -> int:
        """Read the next bytes as a little-endian integer."""
        begin = self.at
        self.at = end = begin + count
        if end > len(self.content):
            self.at = begin
            self.take(count)  # raises the error
        return int.from_bytes(self.content[begin:end], "little", signed=signed)

    # The stack --------------------------------------------------------------------------------

    def count(self, values: int) -> None:
        """Count values against the memory bound."""
        self.made += values
        if self.made > MOST_VALUES:
            self.fail(
                f"more than {MOST_VALUES} values are made and kept; record fewer events "
                "(max_entries=100000)"
            )

    def push(self, value: Any) -> None:
        """Push a value."""
        self.count(1)
        if len(self.stack) >= MOST_STACKED:
            self.fail(f"more than {MOST_STACKED} values that belong to nothing")
        self.stack.append(value)

    def pop(self) -> Any:
        """Pop the top value, above the last mark."""
        if len(self.stack) <= (self.open[-1] if self.open else 0):
            self.fail("it takes a value that is not there")
        return self.stack.pop()

    def pop_all(self) -> list[Any]:
        """Pop all values above the last mark, and the mark."""
        if not self.open:
            self.fail("it ends what it never began")
        floor = self.open.pop()
        taken = self.stack[floor:]
        del self.stack[floor:]
        return taken

    def top(self, kind: type) -> Any:
        """Return the top value, which must be of the given type."""
        if len(self.stack) <= (self.open[-1] if self.open else 0):
            self.fail("it fills what is not there")
        if type(self.stack[-1]) is not kind:
            self.fail(f"it fills a {kind.__name__}, and there is none")
        return self.stack[-1]

    def mark(self) -> None:
        """Push a mark, where a list, a dict or a tuple begins."""
        if len(self.open) >= MOST_OPEN:
            self.fail(f"more than {MOST_OPEN} values begun inside each other")
        self.open.append(len(self.stack))

    # Containers -------------------------------------------------------------------------------

    def append(self) -> None:
        value = self.pop()
        self.top(list).append(value)

    def appends(self) -> None:
        values = self.pop_all()
        self.top(list).extend(values)

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.fill([key, value])

    def set_items(self) -> None:
        self.fill(self.pop_all())

    def fill(self, flat: list[Any]) -> None:
        """Add alternating keys and values to the dict on top."""
        entries = self.top(dict)
        if len(flat) % 2:
            self.fail("a key without a value")
        for key in flat[::2]:
            if type(key) is not str and type(key) is not int:
                self.fail("a key that is neither a text nor an integer")
        entries.update(zip(flat[::2], flat[1::2], strict=True))

    def short_tuple(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    # Values -----------------------------------------------------------------------------------

    def long(self) -> None:
        count = self.number(1)
        if count > LONGEST_NUMBER:
            self.fail(f"an integer of {count} bytes; legal are at most {LONGEST_NUMBER}")
        self.push(self.number(count, signed=True))

    def text(self, width: int) -> None:
        content = self.take(self.number(width))
        try:
            self.push(content.decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            self.fail("a text that is not UTF-8")

    def protocol(self) -> None:
        version = self.number(1)
        if version not in PROTOCOLS:
            self.fail(f"protocol {version}; legal are 2 to 5")

    def remember(self, place: int) -> None:
        """Store the top value in the memo."""
        if not self.stack:
            self.fail("it keeps a value that is not there")
        self.count(OF_MEMO)
        self.memo[place] = self.stack[-1]

    def recall(self, width: int) -> None:
        """Push a value from the memo: the hot path of a long file."""
        place = self.number(width)
        try:
            self.push(self.memo[place])
        except KeyError:
            self.fail(f"value {place} was never kept")


ACTIONS: dict[int, Callable[[PickleMachine], object]] = {
    0x80: PickleMachine.protocol,
    0x95: lambda m: m.take(8),  # FRAME: a length for buffered reads, unused
    0x28: PickleMachine.mark,
    0x30: PickleMachine.pop,
    0x31: PickleMachine.pop_all,
    0x7D: lambda m: m.push({}),
    0x5D: lambda m: m.push([]),
    0x29: lambda m: m.push(()),
    0x61: PickleMachine.append,
    0x65: PickleMachine.appends,
    0x73: PickleMachine.set_item,
    0x75: PickleMachine.set_items,
    0x74: lambda m: m.push(tuple(m.pop_all())),
    0x85: lambda m: m.short_tuple(1),
    0x86: lambda m: m.short_tuple(2),
    0x87: lambda m: m.short_tuple(3),
    0x4E: lambda m: m.push(None),
    0x88: lambda m: m.push(True),
    0x89: lambda m: m.push(False),
    0x4A: lambda m: m.push(m.number(4, signed=True)),
    0x4B: lambda m: m.push(m.number(1)),
    0x4D: lambda m: m.push(m.number(2)),
    0x8A: PickleMachine.long,
    0x47: lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    0x8C: lambda m: m.text(1),
    0x58: lambda m: m.text(4),
    0x8D: lambda m: m.text(8),
    0x94: lambda m: m.remember(len(m.memo)),
    0x71: lambda m: m.remember(m.number(1)),
    0x72: lambda m: m.remember(m.number(4)),
    0x68: lambda m: m.recall(1),
    0x6A: lambda m: m.recall(4),
}
