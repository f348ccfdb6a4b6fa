"""The schema of a record's JSON: which tables there are, of which columns, and what they say."""

from __future__ import annotations

from typing import Any

from ipu_backend.model.report.record import FORMAT, VERSION

_TEXT, _NUMBER, _WHOLE, _FLAG = "string", "number", "integer", "boolean"

_PLACE = {"layer": (_TEXT, "the layer, empty for none"), "phase": (_TEXT, "forward, backward or update")}
_LINE = {"line": (_TEXT, "the user's line that made it, empty where none is known")}


def _cycles(**names: str) -> dict[str, tuple[str, str]]:
    return {f"{name}_cycles": (_WHOLE, text) for name, text in names.items()}


TABLES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "steps": (
        "what computes or moves something, in the order of the program",
        {
            "name": (_TEXT, "the compute set, or the copy"),
            "kind": (_TEXT, "compute, copy or host"),
            **_PLACE,
            **_LINE,
            "moment": (_WHOLE, "its row in moments"),
            "depth": (_WHOLE, "how many loops are around it"),
            "turns": (_WHOLE, "how often it runs; 0 in a branch that another is counted for"),
            "turns_are_guessed": (_FLAG, "whether nobody says how often a loop around it turns"),
            "vertices": (_WHOLE, "vertices of one turn"),
            **_cycles(
                exchange_before="of exchange before it computes, all turns",
                compute="by which computing prolongs the program, all turns",
                exchange_after="of exchange after it computes, all turns",
                sync="in which tiles wait for each other, all turns",
                external_exchange="of exchange between chips, all turns",
                external_sync="in which chips wait for each other, all turns",
                host="in which all wait for the host, all turns",
                total="of all turns together",
                launch="of those of computing, which start vertices",
                fitted="of all, which rest on constants fitted to measurements",
                guessed="of all, which rest on guesses",
            ),
            "balance": (_NUMBER, "the mean tile's cycles of the slowest's while it computes, from 0 to 1"),
            "slowest_tile": (_WHOLE, "the tile that computes longest, -1 for none"),
            "computing_tiles": (_WHOLE, "how many tiles compute at all"),
            "received_bytes": (_WHOLE, "of all tiles in one turn"),
            "used_bytes": (_WHOLE, "what its variables take on all tiles"),
            "other_live_bytes": (_WHOLE, "what other variables are live meanwhile"),
        },
    ),
    "moments": (
        "the program as a tree: every step, loop and choice, in the order of its text",
        {
            "name": (_TEXT, "what happens"),
            "depth": (_WHOLE, "how many loops and choices are around it"),
            "turns": (_WHOLE, "how often it happens"),
            "step": (_WHOLE, "its row in steps, -1 for none"),
            "live_bytes": (_WHOLE, "bytes live on all tiles, code and all else among them"),
        },
    ),
    "tiles": (
        "the tiles; beside these columns one for the bytes of each kind of memory",
        {
            "tile": (_WHOLE, "its number"),
            "chip": (_WHOLE, "its chip"),
            "row": (_WHOLE, "where it is shown on the chip"),
            "column": (_WHOLE, "where it is shown on the chip"),
            "region": (_WHOLE, "the region that traffic counts it in"),
            "compute_cycles": (_WHOLE, "for which it computes, all steps and turns"),
            "received_bytes": (_WHOLE, "which it receives, all steps and turns"),
            "sent_bytes": (_WHOLE, "which it sends, all steps and turns; what goes to several tiles counts once"),
            "total_bytes": (_WHOLE, "of memory that is taken"),
            "most_live_bytes": (_WHOLE, "the most that is in use at once"),
        },
    ),
    "step_tiles": (
        "what a tile does in one turn of a step, where it does anything",
        {
            "step": (_WHOLE, "the row in steps"),
            "tile": (_WHOLE, "the tile"),
            "compute_cycles": (_WHOLE, "for which it computes"),
            "received_bytes": (_WHOLE, "which it receives from other tiles"),
            "sent_bytes": (_WHOLE, "which it sends to other tiles; what goes to several counts once"),
        },
    ),
    "traffic": (
        "what regions of tiles send to each other in one turn of a step",
        {
            "step": (_WHOLE, "the row in steps"),
            "sender": (_WHOLE, "the region that sends"),
            "receiver": (_WHOLE, "the region that receives"),
            "bytes": (_WHOLE, "which arrive"),
        },
    ),
    "moves": (
        "what of each variable moves in one turn of a step",
        {
            "step": (_WHOLE, "the row in steps"),
            "variable": (_WHOLE, "the number of the variable"),
            "bytes": (_WHOLE, "which arrive on all tiles"),
            "different_bytes": (_WHOLE, "of those, of different elements"),
        },
    ),
    "occupants": (
        "what takes memory: variables that share a place, code, buffers",
        {
            "name": (_TEXT, "what it is"),
            "kind": (_TEXT, "the kind of memory"),
            "is_always_live": (_FLAG, "whether it has its bytes to itself"),
            "variable": (_WHOLE, "the first of its variables, -1 for none"),
            "bytes": (_WHOLE, "on all tiles"),
            "most_bytes": (_WHOLE, "on the tile on which it takes most"),
            "fullest_tile": (_WHOLE, "that tile, -1 for none"),
            "tiles": (_WHOLE, "on how many tiles it takes anything"),
        },
    ),
    "residents": (
        "where each occupant lies on each tile",
        {
            "occupant": (_WHOLE, "the row in occupants"),
            "tile": (_WHOLE, "the tile"),
            "address": (_WHOLE, "its first byte"),
            "bytes": (_WHOLE, "how many there are"),
        },
    ),
    "lives": (
        "when each occupant that is not always live is",
        {
            "occupant": (_WHOLE, "the row in occupants"),
            "first_moment": (_WHOLE, "the first of some moments in a row in which it is live"),
            "last_moment": (_WHOLE, "the last of them"),
        },
    ),
    "variables": (
        "the variables of the program",
        {
            "variable": (_WHOLE, "its number in the graph"),
            "name": (_TEXT, "its name"),
            "type": (_TEXT, "its dtype and shape"),
            "is_constant": (_FLAG, "whether it is a constant"),
            **_PLACE,
            **_LINE,
            "bytes": (_WHOLE, "of its elements"),
            "tiles": (_WHOLE, "on how many tiles it lives"),
            "most_bytes": (_WHOLE, "of its elements on one tile"),
            "occupant": (_WHOLE, "the row in occupants, -1 where the program does not name it"),
        },
    ),
    "codelets": (
        "the codelets, those that take most cycles first",
        {
            "name": (_TEXT, "its name"),
            **_LINE,
            "vertices": (_WHOLE, "its vertices"),
            "cycles": (_WHOLE, "of all its vertices and turns on one worker"),
            "if_assembly_cycles": (_WHOLE, "the same if it were assembly"),
            "is_supposed": (_FLAG, "whether it is taken for compiled, since nobody says how it is made"),
        },
    ),
    "vertices": (
        "the vertices by compute set and codelet",
        {
            "compute_set": (_TEXT, "the compute set"),
            "codelet": (_TEXT, "the codelet"),
            **_PLACE,
            **_LINE,
            "vertices": (_WHOLE, "how many there are"),
            "workers": (_WHOLE, "how many workers of its tile each takes"),
            "edges": (_WHOLE, "how many edges they have"),
            "turns": (_WHOLE, "how often they run"),
            "cycles": (_WHOLE, "of all of them and all turns on one worker"),
            "tiles": (_WHOLE, "on how many tiles they are"),
            "tiles_are_given": (_FLAG, "whether the graph says which"),
            "reduced": (_WHOLE, "how many elements of a field one of them reduces, the most; 0 where it reduces none"),
            "reduction": (_TEXT, "the function of cl.ops that does the same, empty for none"),
        },
    ),
    "placements": (
        "the placements that were compared, the chosen one first; none where there was nothing to choose",
        {
            "way": (_TEXT, "how it was made"),
            "is_chosen": (_FLAG, "whether it is that of the program"),
            "cycles": (_WHOLE, "of a run"),
            "is_bound": (_FLAG, "whether it takes at least so many, which was enough to know"),
            "bytes": (_WHOLE, "of variables on the fullest tile, with what that receives in a step; -1 where unknown"),
            "fits": (_FLAG, "whether the variables fit the tiles"),
        },
    ),
}
"""The tables by their names: what a row is, and of each column its type and what it says."""


def schema() -> dict[str, Any]:
    """The JSON schema of `Record.to_dict`.

    Source: JSON Schema, draft 2020-12.
    """
    tables = {
        name: {
            "description": f"a row for each of: {text}",
            "type": "object",
            "properties": {
                column: {"type": "array", "items": {"type": kind}, "description": says}
                for column, (kind, says) in columns.items()
            },
            "required": list(columns),
            "additionalProperties": {"type": "array", "items": {"type": "integer"}} if name == "tiles" else False,
        }
        for name, (text, columns) in TABLES.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": FORMAT,
        "type": "object",
        "properties": {
            "format": {"const": FORMAT},
            "version": {"const": VERSION},
            "about": {"type": "object", "description": "the program and its machine in single numbers and names"},
            "tables": {
                "type": "object",
                "properties": tables,
                "required": list(tables),
                "additionalProperties": False,
            },
        },
        "required": ["format", "version", "about", "tables"],
        "additionalProperties": False,
    }
