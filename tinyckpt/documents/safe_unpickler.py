"""Safe unpickler: abstract interpretation of the opcodes, then the standard library's Unpickler.

In: the bytes of an untrusted file. Out: dicts, lists, tuples, texts, numbers, True, False and None.
A pickle is a program for a stack machine. A first pass runs it on the types of the values alone: it
allows the opcodes that construct data, of protocols 2 to 5, and none of those that import, call or
build (a file with one is refused at that byte), and it bounds what the Unpickler trusts: the number
of values, the height of the stack, places in the memo, the lengths of texts and integers. Keys are
texts and integers only: the hash of a nested tuple recurses, and takes exponential time if its
parts are shared.

Source: ``pickletools`` of the standard library, whose table of arguments and stack effects drives
the pass. The lab page has a whole interpreter, with the same errors, in viz/lab/assets/pickles.js.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pickletools import OpcodeInfo, StackObject
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
KEYS = {pickletools.pyunicode, pickletools.pyint}  # types of the keys of a dict
LEGAL = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE",
    "APPEND", "APPENDS", "SETITEM", "SETITEMS", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NONE",
    "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE",
    "BINUNICODE", "BINUNICODE8", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
})  # fmt: skip
# Opcodes that import, call or build Python objects, or ask the unpickler for one.
CODE = frozenset({
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "PERSID",
    "BINPERSID", "EXT1", "EXT2", "EXT4",
})  # fmt: skip
OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
ACTIONS = {code: opcode for code, opcode in OPCODES.items() if opcode.name in LEGAL}
# Bytes of the length that stands before an argument; any other argument has bytes of its own.
LENGTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}


def read_pickle(content: bytes, path: object) -> Any:
    """Unpickle plain data; ``path`` names the file in errors.

    Raises:
        FormatError: if it is cut short or damaged, or asks for anything but plain data; says at
            which byte.
    """
    checked = io.BytesIO(PickleChecker(content, path).run())
    # Buffered, since an Unpickler reads single opcodes from a file that it cannot look ahead in.
    return DataUnpickler(io.BufferedReader(checked)).load()


class DataUnpickler(pickle.Unpickler):
    """Unpickler of data alone, should the check ever let pass an opcode that asks for more."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise FormatError(f"{module}.{name} in a pickle; legal is plain data alone")


class PickleChecker:
    """Stack machine for a pickle's opcodes, with the types of values in place of the values."""

    __slots__ = ("at", "content", "made", "marks", "memo", "path", "stack")

    def __init__(self, content: bytes, path: object) -> None:
        self.content, self.path = content, path
        self.at = 0
        self.made = 0
        self.stack: list[StackObject] = []
        self.marks = [0]  # how high the stack was at the start, and at each open mark
        self.memo: list[StackObject] = []

    def run(self) -> bytes:
        """Check the opcodes up to STOP; return them without frames.

        Frames, which say how much to read at once, may contradict each other and the file.
        """
        content, begin = self.content, 0
        unframed: list[bytes] = []
        while self.at < len(content):
            start = self.at
            opcode = ACTIONS.get(content[start])
            if opcode is None:
                self.refuse(content[start])
            name = opcode.name
            if name == "STOP":
                if len(self.stack) != 1 or len(self.marks) > 1:
                    self.fail(f"it ends with {len(self.stack)} values instead of one")
                return b"".join([*unframed, content[begin : self.at + 1]])
            self.at += 1
            argument = self.argument(name, opcode.arg.n) if opcode.arg else -1
            if name in ("BINGET", "LONG_BINGET"):  # most opcodes of a long file
                self.recall(argument)
            elif name in ("MEMOIZE", "BINPUT", "LONG_BINPUT"):
                self.remember(argument)
            elif name == "PROTO" and argument not in PROTOCOLS:
                self.fail(f"protocol {argument}; legal are 2 to 5")
            elif name == "MARK":
                self.mark()
            elif name == "FRAME":
                unframed.append(content[begin:start])
                begin = self.at
            else:
                self.effect(opcode)
        raise FormatError(f"{self.path}: the pickle has no end; was the file cut short?")

    def fail(self, problem: str) -> NoReturn:
        """Raise a FormatError at the present byte."""
        raise FormatError(f"{self.path}: byte {self.at}: {problem}")

    def refuse(self, code: int) -> NoReturn:
        """Raise the FormatError of an unsupported opcode."""
        name = OPCODES[code].name if code in OPCODES else ""
        if name in CODE:
            self.fail(
                f"{name} would load or call code; legal is plain data alone, and nothing of the "
                "file was executed"
            )
        self.fail(f"{code:#04x} is no instruction of plain data in a pickle of protocol 2 to 5")

    def argument(self, name: str, width: int) -> int:
        """Pass an opcode's argument; return it as an unsigned integer, or its length."""
        if width not in LENGTHS:
            return int.from_bytes(self.take(width), "little")
        length = int.from_bytes(self.take(LENGTHS[width]), "little")
        if name == "LONG1" and length > LONGEST_NUMBER:
            self.fail(f"an integer of {length} bytes; legal are at most {LONGEST_NUMBER}")
        content = self.take(length)
        try:
            if name != "LONG1":
                content.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self.fail("a text that is not UTF-8")
        return length

    def take(self, count: int) -> bytes:
        """Read the next bytes."""
        taken = self.content[self.at : self.at + count]
        if len(taken) < count:
            self.fail("more bytes were to come; was the file cut short?")
        self.at += count
        return taken

    def effect(self, opcode: OpcodeInfo) -> None:
        """Take what an opcode expects on the stack, top first; push the type of its value."""
        taken: list[StackObject] = []
        for expected in reversed(opcode.stack_before):
            if expected is pickletools.stackslice:  # all above the last mark
                if len(self.marks) == 1:
                    self.fail("it ends what it never began")
                floor = self.marks.pop()
                taken = self.stack[floor:]
                del self.stack[floor:]
            elif expected is pickletools.anyobject:
                if len(self.stack) <= self.marks[-1]:
                    self.fail("it takes a value that is not there")
                taken.insert(0, self.stack.pop())
            elif expected is not pickletools.markobject:
                self.fill(expected, taken)
                return
        for kind in opcode.stack_after:
            self.push(kind)

    def fill(self, container: StackObject, taken: list[StackObject]) -> None:
        """Check the list or dict on top, and the keys that a dict is given."""
        if len(self.stack) <= self.marks[-1]:
            self.fail("it fills what is not there")
        if self.stack[-1] is not container:
            self.fail(f"it fills a {container.name}, and there is none")
        if container is pickletools.pydict and len(taken) % 2:
            self.fail("a key without a value")
        if container is pickletools.pydict and not KEYS.issuperset(taken[::2]):
            self.fail("a key that is neither a text nor an integer")

    def push(self, kind: StackObject) -> None:
        """Push the type of a value."""
        self.count(1)
        if len(self.stack) >= MOST_STACKED:
            self.fail(f"more than {MOST_STACKED} values that belong to nothing")
        self.stack.append(kind)

    def mark(self) -> None:
        """Push a mark, where a list, a dict or a tuple begins."""
        if len(self.marks) > MOST_OPEN:
            self.fail(f"more than {MOST_OPEN} values begun inside each other")
        self.marks.append(len(self.stack))

    def remember(self, place: int) -> None:
        """Store the top value, at -1 in the next place: the Unpickler's memo is an array."""
        place = len(self.memo) if place < 0 else place
        if len(self.stack) <= self.marks[-1]:
            self.fail("it keeps a value that is not there")
        if place > len(self.memo):
            self.fail(f"it keeps value {place} before value {len(self.memo)}")
        self.count(OF_MEMO)
        self.memo[place : place + 1] = self.stack[-1:]

    def recall(self, place: int) -> None:
        """Push the type of a value from the memo."""
        if place >= len(self.memo):
            self.fail(f"value {place} was never kept")
        self.push(self.memo[place])

    def count(self, values: int) -> None:
        """Count values against the memory bound."""
        self.made += values
        if self.made > MOST_VALUES:
            self.fail(
                f"more than {MOST_VALUES} values are made and kept; record fewer events "
                "(max_entries=100000)"
            )
