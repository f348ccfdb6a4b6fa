"""Files of `cl.save` with something wrong in them: by chance, or by somebody who knows the format and its digests."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from codelet.jaxprs.strict_json import written_json
from codelet.saved.archive import CODELETS, GRAPH, MANIFEST, PLAN, TENSORS


def parts_of(path: Path) -> dict[str, bytes]:
    """The parts of a file, the manifest among them."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def with_digests(parts: dict[str, bytes], **changes: Any) -> dict[str, bytes]:
    """Parts with a manifest that agrees with them, and some other entries."""
    manifest = json.loads(parts[MANIFEST])
    del manifest["digest"]
    manifest["parts"] = {
        name: {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
        for name, body in parts.items()
        if name != MANIFEST
    }
    manifest.update(changes)
    digest = hashlib.sha256(written_json(manifest)).hexdigest()
    return {**parts, MANIFEST: written_json({**manifest, "digest": digest})}


def zipped(parts: dict[str, bytes] | list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Parts as a file."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as archive:
        for name, body in parts.items() if isinstance(parts, dict) else parts:
            archive.writestr(name, body)
    return made.getvalue()


def _places(plain: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in plain data with every key of it."""
    waiting = [plain]
    while waiting:
        container = waiting.pop()
        if isinstance(container, (dict, list)):
            keys = container.keys() if isinstance(container, dict) else range(len(container))
            for key in keys:
                yield container, key
                waiting.append(container[key])


def _nested(depth: int) -> Any:
    plain: Any = 0
    for _ in range(depth):
        plain = [plain]
    return plain


_STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 2**31, 2**63, -(2**70), 10**400, "", "x", "../../etc/passwd", "a/../b"),
    *("<script>alert(1)</script>", "\0", "n" * 100_000, "__import__('os')", "9" * 5000, [], {}, [[]], [None], {"": 0}),
    *(["f", "nan"], ["f", "0x1p5000"], ["n", "float32", "ff"], ["d", "object"], ["e", "Precision", "__class__"]),
    *(["j", {}], ["z", "n^n"], ["z", "9" * 300], ["a", 10**9], ["a", -1], _nested(50)),
)
"""What no writer writes, mostly, in any place of JSON."""


def _value(chance: random.Random, value: Any, every: list[tuple[Any, Any]]) -> Any:
    """What takes the place of a value."""
    if isinstance(value, int) and not isinstance(value, bool) and chance.random() < 0.5:
        return value + chance.choice([-1, 1, 7, 1000, 2**40, -value, value])
    if chance.random() < 0.3:
        container, key = chance.choice(every)
        there = key in container if isinstance(container, dict) else key < len(container)  # after what changed before
        return copy.deepcopy(container[key]) if there else None
    return copy.deepcopy(chance.choice(_STRANGE))


def _changed_json(chance: random.Random, body: bytes) -> bytes:
    plain = json.loads(body)
    every = list(_places(plain))
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        container, key = chance.choice(every)
        if isinstance(container, list) and key >= len(container):
            continue
        if not isinstance(container, list) and key not in container:
            continue
        kind = chance.random()
        if kind < 0.15 and isinstance(container, dict):
            del container[key]
        elif kind < 0.15:
            container.pop(key)
        elif kind < 0.25 and isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        elif kind < 0.3 and isinstance(container, dict):
            container[chance.choice(["", "x", "__class__", "../x"])] = container[key]
        else:
            container[key] = _value(chance, container[key], every)
    return json.dumps(plain).encode()


def _changed_bytes(chance: random.Random, data: bytes) -> bytes:
    own = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 8])):
        place = chance.randrange(len(own))
        kind = chance.random()
        if kind < 0.5:
            own[place] ^= 1 << chance.randrange(8)
        elif kind < 0.7:
            own[place : place + 4] = chance.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f"])
        elif kind < 0.8:
            del own[place : place + chance.choice([1, 4, 1000])]
        elif kind < 0.9:
            own[place:place] = own[: chance.choice([1, 16, 100])]
        else:
            del own[place:]
        own = own or bytearray(b"\0")
    return bytes(own)


def by_chance(data: bytes, chance: random.Random) -> bytes:
    """A file with some bytes changed, lost or added."""
    return _changed_bytes(chance, data)


def by_design(parts: dict[str, bytes], chance: random.Random) -> bytes:
    """A file with something changed in one of its parts, and digests that agree with that."""
    names = [GRAPH, GRAPH, GRAPH, CODELETS, CODELETS, TENSORS]
    name = chance.choice([*names, PLAN] if PLAN in parts else names)
    change: Callable[[random.Random, bytes], bytes] = _changed_bytes if name == TENSORS else _changed_json
    if name == TENSORS and chance.random() < 0.5:
        length = int.from_bytes(parts[name][:8], "little")
        header = _changed_json(chance, parts[name][8 : 8 + length])
        header += b" " * (-len(header) % 8)
        body = len(header).to_bytes(8, "little") + header + parts[name][8 + length :]
    else:
        body = change(chance, parts[name])
    return zipped(with_digests({**parts, name: body}))
