"""What a GPU would run: how it is counted, in texts that XLA wrote; and, where its compiler is there, one program."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import replace

import pytest

from benchmarks import gpu, on_device
from benchmarks.gpu import PROGRAMS, Counted, tables
from benchmarks.gpu_compile import FOLDER, GPUS, Compiled, NoWheels, environment, wheels
from benchmarks.gpu_counts import (
    Launches,
    compare_and_swaps,
    launches,
    library_bytes,
    loop_names,
    may_spill,
    scratch_bytes,
    spilled_bytes,
    trip_counts,
)
from benchmarks.harness import HEADER

SEQUENCE = """\
001: kCublasLtMatmul [source       | next=004 (3)] kCublasLtMatmul
002: kCopy           [source       | next=004 (2)] kCopy
004: kWhile          [prev=003 (1) | next=010 (1)]
condition:
    005: kCustomKernel [source | sink] loop_compare_fusion grid: [1, 1, 1] threads: [1, 1, 1]
  body:
    006: kCustomKernel [source       | next=008 (2)] input_reduce_fusion grid: [2, 1, 1] threads: [1024, 1, 1]
    007: kWhile [source | sink]
    condition:
        008: kCustomKernel [source | sink] loop_compare_fusion.1 grid: [1, 1, 1] threads: [1, 1, 1]
      body:
        009: kCustomKernel [source | sink] loop_add_fusion grid: [1, 1, 1] threads: [128, 1, 1]
010: kSequential [prev=004 (1) | sink        ]
    011: kCustomKernel [source       | sink        ] sort_6_1 grid: [1024, 1, 1] threads: [256, 1, 1]
"""

METADATA = """\
thunk_metadata {
  thunk_info {
    profile_annotation: "copy.8"
    thunk_id: 2
  }
  thunk_kind: "kCopy"
}
thunk_metadata {
  thunk_info {
    profile_annotation: "while.5"
    thunk_id: 4
  }
  thunk_kind: "kWhile"
}
"""

HLO = """\
ENTRY %main.13 (w.1: f32[784,128], x.1: f32[1024,784]) -> (f32[128], f32[128]) {
  %w.1 = f32[784,128]{1,0} parameter(0)
  %x.1 = f32[1024,784]{1,0} parameter(1)
  %matmul.1 = (f32[1024,128]{1,0}, s8[33554432]{0}) custom-call(%x.1, %w.1), custom_call_target="__cublas$lt$matmul"
  %while.5 = (s32[], f32[128]{0}) while(%tuple), condition=%c, body=%b, backend_config={"known_trip_count":{"n":"50"}}
  %while.6 = (s32[], f32[128]{0}) while(%tuple), condition=%c, body=%b, backend_config={}
"""

PTX = """\
.visible .entry wide(.param .u64 wide_param_0)
.maxntid {threads}, 1, 1
{{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<{count}>;
	.reg .b64 	%rd<20>;
	atom.global.add.f32 	%r1, [%rd1], %r2;
	atom.relaxed.gpu.global.cas.b32 	%r3, [%rd2], %r4, %r5;
}}
"""


def test_launches_are_counted_as_they_stand_and_as_often_as_loops_turn():
    turns = {number: trip_counts(HLO)[name] for number, name in loop_names(METADATA).items()}
    assert turns == {4: 50}
    found = launches(SEQUENCE, turns)
    assert found == Launches(kernels=3, loops=2, in_loops=4, run=3 + 50 * 4)
    assert found.standing == 7
    assert launches(SEQUENCE, {4: 50, 7: 3}).run == 3 + 50 * (2 + 3 * 2)
    assert launches("", {}) == Launches(0, 0, 0, 0)


def test_a_slice_that_is_fused_with_a_copy_launches_the_copy_alone():
    sliced = """\
001: kDynamicSliceFusion [source       | next=003 (1)] params=1, results=1
    002: kCopy [source | sink] kCopy
003: kCustomKernel       [prev=001 (1) | sink        ] loop_add_fusion grid: [1, 1, 1] threads: [1, 1, 1]
"""
    assert launches(sliced, {}) == Launches(kernels=2, loops=0, in_loops=0, run=2)


def test_loops_of_which_the_turns_are_not_known_are_left_out():
    assert trip_counts(HLO) == {"while.5": 50}


def test_library_calls_by_what_they_are_given_and_give():
    assert library_bytes(HLO) == 4 * (784 * 128 + 1024 * 784 + 1024 * 128)
    assert scratch_bytes(HLO) == 33_554_432
    assert library_bytes("") == scratch_bytes("") == 0


def test_compare_and_swaps_and_registers_of_ptx():
    few, many = PTX.format(threads=128, count=150), PTX.format(threads=128, count=250)
    assert compare_and_swaps(few) == 1
    assert (may_spill(few), may_spill(many)) == (False, True)
    assert may_spill(PTX.format(threads=1024, count=50))  # whose threads have 64 registers each
    assert spilled_bytes("    2952 bytes stack frame, 12472 bytes spill stores, 9364 bytes spill loads") == 12472


SIDE = Compiled(Launches(3, 1, 4, 203), 1_000_000, 0, 5_000_000, 0, 0, 1.5)


def test_what_is_missed():
    same = Counted("row", "h100", SIDE, SIDE)
    assert same.misses == []
    more = replace(SIDE, launches=replace(SIDE.launches, run=300), temporaries=2_000_000, swaps=2, spilled=8)
    assert replace(same, ours=more).misses == ["kernels of a run", "temporary memory", "compare-and-swap", "spills"]
    assert replace(same, ours=replace(SIDE, temporaries=1_060_000)).misses == []  # too few bytes to be a miss
    assert replace(same, ours="XlaRuntimeError: no memory").misses == ["not compiled"]
    assert replace(same, ours="no", plain="no").misses == []
    assert replace(same, ours=replace(more, swaps=2), plain=replace(SIDE, swaps=1, spilled=1)).misses == [
        "kernels of a run",
        "temporary memory",
    ]


def test_a_network_that_compiles_for_long_is_missed():
    slow = replace(SIDE, seconds=1.6 * SIDE.seconds)
    assert Counted("strain_step/batch1", "h100", slow, SIDE).misses == ["seconds to compile"]
    assert Counted("heat", "h100", slow, SIDE).misses == []


def test_counts_are_kept_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "KEPT", tmp_path / "gpu.json")
    rows = [Counted("heat", name, SIDE, SIDE) for name in GPUS] + [Counted("odd", "h100", "no", SIDE)]
    gpu.keep(rows)
    assert sorted(gpu.read_kept(), key=lambda own: (own.name, own.gpu)) == sorted(
        rows, key=lambda own: (own.name, own.gpu)
    )
    text = tables(rows)
    assert "| `heat` | 1 | 1.00 | 1.00 |" in text
    assert "| `odd` | h100 |" in text
    assert all(own.name in text for own in GPUS.values())


def test_every_program_of_the_tutorials_is_compiled():
    from tests.test_tutorial_programs import SMALL

    assert {*PROGRAMS} == {*SMALL}


def test_without_the_compiler_it_says_how_to_get_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with pytest.raises(NoWheels, match="pip install --no-deps --target"):
        wheels()
    assert gpu.main(["heat"]) == 2
    assert FOLDER in capsys.readouterr().err


@pytest.mark.slow
def test_one_program_is_compiled_for_each_gpu():
    try:
        wheels()
    except NoWheels as reason:
        pytest.skip(str(reason))
    with tempfile.TemporaryDirectory() as dump:
        given = json.dumps(["ops_softmax", 0, 1, list(GPUS), None])
        command = [sys.executable, "-c", "import sys; from benchmarks.gpu import work; work(sys.argv[1])", given]
        done = subprocess.run(command, env=environment(dump), capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["gpu"] for row in rows] == list(GPUS)
    assert all(row["ours"]["launches"]["kernels"] == row["plain"]["launches"]["kernels"] >= 1 for row in rows)


def test_rows_take_turns_and_a_failure_is_said(capsys):
    names = [own.name for own in on_device._by_turns(["ops_softmax", "ops_random"])]
    assert names[0].startswith("ops_softmax")
    assert names[1].startswith("ops_random")
    assert on_device._rows(["ops_softmax"], end=0.0)  # no time: none is reached
    shown = capsys.readouterr().out
    assert HEADER in shown
    assert "0 rows, 0 above the bar, 0 failed, 6 not reached" in shown
