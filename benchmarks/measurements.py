"""What was measured of programs on IPUs, and published: the one table of such numbers here.

A series is of one program (`measured_programs.py`, `measured_vertices.py`), by its argument; what is compared is a
figure that the program returns. Kinds: `hardware`; `Poplar's model`, which counts by the estimators of its own
vertices; `bound`, a number that a test on hardware asserts not to be passed. A series that a number of the model comes
from says so; by the others nothing was chosen.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

HARDWARE, MODEL, BOUND = "hardware", "Poplar's model", "bound"


@dataclass(frozen=True)
class Series:
    """Measurements of one program.

    Attributes:
        program: its name among `measured_vertices.PROGRAMS`.
        figure: what of it was measured.
        kind: how.
        values: what was published, by the program's argument; cycles unless the figure says bytes.
        source: the public repository and file, and the commit where files of it differ.
        less: cycles to take off what was published: what the counters themselves take.
        is_source: whether a number of the model comes from it, so that it judges nothing.
    """

    program: str
    figure: str
    kind: str
    values: Mapping[Hashable, float]
    source: str
    less: float = 0
    is_source: bool = False


_COUNTERS = 45  # between two counters with nothing between: "experimental value" of tessellate-ipu's tests
_TESSELLATE = "graphcore-research/tessellate-ipu"
_FLOPS = f"{_TESSELLATE} notebooks/IPU Peak Flops.ipynb @ 3ab241f3"
_JACOBI = f"{_TESSELLATE} tests/linalg/test_tile_linalg_jacobi.py @ 1a8d53e1"
_QR = f"{_TESSELLATE} tests/linalg/test_tile_linalg_qr.py @ 53342b0c"
_BASICS = f"{_TESSELLATE} notebooks/01-tessellate-ipu-tile-api-basics.ipynb @ 02557a3c"
_TUTORIAL = "graphcore/examples tutorials/tutorials/poplar/tut6_matrix_vector_opt/README.md @ 2d8b5653"
_PROFILING = "graphcore/examples, lightweight profiling tutorial"
_EXPLORER = "markp-gc/poplar_explorer src/codelets/OptimisingVertices/matrix4x4.cpp @ efacb896"
_BLUR = "thorbenlouw/lbm-graphcore experiments/gaussian-blur-scaling/exchange-vs-compute.txt @ 97cd841a"
_HALO = "thorbenlouw/lbm-graphcore experiments/halo-exchange-approaches/results.txt @ 2db8c0cb"
_WALL = "thorbenlouw/lbm-graphcore experiments/gaussian-blur-scaling/raw_results.txt @ 2db8c0cb"
_COOKBOOK = "UoB-HPC/ipu-hpc-cookbook"
_PI = "UCL-RITS/pi_examples cpp_ipu_pi_dir/README.md @ cae6eb88"
_POPLIBS = "graphcore/poplibs tests/benchmark_results.csv @ 53a4707a"
_SOLVER = "graphcore/poplibs lib/poplin/poplinCycleEstimators.cpp @ f9d7e152, which interpolates it"
_REPORT = "Graphcore's TensorFlow user guide, report of an adder"
_STACK = "osmarks/ipu-stack"
_ELEMENTWISE = f"{_STACK} ELEMENTWISE_KERNELS @ 290c6a28"
_PIPELINES = f"{_STACK} KERNEL_PIPELINES @ 2de6a24d"
_LOOPS = f"{_STACK} KERNEL_LOOP_UPGRADE @ 7a1192b9"
_SDK = f"{_STACK} docs/SDK_ONNX_PROFILE_ANALYSIS.md @ 3b2cc3f7"
_GEMM = f"{_STACK} GEMM_UTILIZATION @ 5f29bea3"

_ROWS = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 512, 1024, 2032, 2048)
_UNIT = (402, 461.35, 524, 584, 653.35, 716, 776, 845.34, 908, 968, 1037.35, 1100, 1160, 1229.35, 1292, 1352)
_MK1_MS = 1.6e6  # cycles

MEASURED: tuple[Series, ...] = (
    # one vertex on one tile, between two counters
    Series(
        "matrix_unit", "compute", HARDWARE, dict(zip(_ROWS, (*_UNIT, 2381.3, 4424, 8456, 8525.3), strict=True)), _FLOPS
    ),
    Series("scaled_add", "compute", HARDWARE, {64: 375, 128: 467, 256: 665, 512: 1043}, _JACOBI, _COUNTERS),
    Series("add_float", "compute", HARDWARE, {5: 354, 1024: 1858}, _BASICS, _COUNTERS),
    Series("householder_update", "compute", HARDWARE, {256: 683}, _QR, _COUNTERS),
    Series(
        "rotation",
        "compute",
        HARDWARE,
        {512: 1916},
        f"{_TESSELLATE} tests/lax/test_tile_lax_small_dot.py @ 5d552e09",
        _COUNTERS,
    ),
    Series("cholesky", "compute", HARDWARE, {8: 7950, 16: 31926, 32: 140550, 64: 686502}, _SOLVER, is_source=True),
    Series("solve_lower", "compute", HARDWARE, {16: 3138, 32: 7170, 64: 17538}, _SOLVER, is_source=True),
    Series("solve_upper", "compute", HARDWARE, {16: 4398, 32: 12198, 64: 38166}, _SOLVER, is_source=True),
    # the same, as a test of theirs asserts that it takes no more
    Series("correction_vector", "compute", BOUND, {128: 950}, _QR, _COUNTERS),
    Series("dot_of_workers", "compute", BOUND, {512: 800}, _QR, _COUNTERS),
    Series("schur_of_two", "compute", BOUND, {128: 310}, _JACOBI, _COUNTERS),
    Series("jacobi_first_step", "compute", BOUND, {256: 1550}, _JACOBI, _COUNTERS),
    Series("jacobi_eigenvectors", "compute", BOUND, {256: 2200}, _JACOBI, _COUNTERS),
    Series("tile_copy", "compute", BOUND, {512: 5000}, f"{_TESSELLATE} test_tile_lax_basic.py @ 39d8d037", _COUNTERS),
    Series("tridiagonal", "compute", BOUND, {1472: 180_000}, f"{_TESSELLATE} tests @ 6d630797", _COUNTERS),
    # compiled C++; the first is why a loop that stores nothing is taken to go round at no cost
    Series("matrix_vector", "compute, mean of tiles", HARDWARE, {"compiled": 28_300.3}, _TUTORIAL, is_source=True),
    Series("matrix_vector", "compute, mean of tiles", MODEL, {"as Poplar's estimate": 3_717.6}, _TUTORIAL),
    Series("matrix_vector", "exchange", HARDWARE, {"compiled": 8_743.1}, _TUTORIAL),
    Series("matrix_vector", "exchange", MODEL, {"as Poplar's estimate": 8_697.4}, _TUTORIAL),
    Series("matrix_vector", "sync", HARDWARE, {"compiled": 135_849.6}, _TUTORIAL),
    Series("matrix_vector", "sync", MODEL, {"as Poplar's estimate": 1_134.8}, _TUTORIAL),
    Series("matrix_vector", "host", HARDWARE, {"compiled": 2_641_488.4}, _TUTORIAL),
    Series("matrix_vector", "host", MODEL, {"as Poplar's estimate": 6_663_550.8}, _TUTORIAL, is_source=True),
    Series("matrix_vector", "total", HARDWARE, {"compiled": 25_444_984}, _TUTORIAL),
    Series("matrix_vector", "total", MODEL, {"as Poplar's estimate": 6_681_766}, _TUTORIAL, is_source=True),
    Series("transform_4x4", "compute", HARDWARE, {"scalar": 82_500, "vectorised": 54_500}, _EXPLORER),
    Series(
        "gaussian_blur",
        "compute, mean of tiles",
        HARDWARE,
        {"float32": 160_734, "float32 in pairs": 76_614, "float16 in fours": 48_882},
        _BLUR,
    ),
    Series(
        "added_in_place",
        "worker, 2,000 elements less 1,000",
        HARDWARE,
        {"int32": 7_000},
        f"{_COOKBOOK}, instructions that popc emits @ 0ea42689",
    ),
    Series(
        "added_in_place",
        "worker, 2,000 elements less 1,000",
        HARDWARE,
        {"float32 in pairs": 2_000},
        f"{_COOKBOOK}, instructions that popc emits @ 085b9fec",
        is_source=True,
    ),
    Series("quadrature", "compute", HARDWARE, {(1000, "C++"): 90_084, (2_917_775, "C++"): 262_599_924}, _PI),
    Series(
        "quadrature",
        "compute",
        HARDWARE,
        {(2_917_775, "Julia"): 245_093_526, (2_917_775, "Julia, unrolled"): 138_594_708},
        "UCL-RITS/pi_examples julia_ipu_pi_dir/README.md",
    ),
    # copies on a tile, halos
    Series("strided_copy", "compute of its vertices", MODEL, {100: 801.0, 200: 1579}, _HALO, is_source=True),
    Series("short_copy", "compute of its vertices", MODEL, {100: 83.0}, _HALO),
    Series("halos", "exchange of a phase", MODEL, {100: 284}, _HALO),
    Series("halos", "sync of a phase", MODEL, {100: 166}, _HALO),
    Series("halos", "compute of a phase", MODEL, {100: 600}, _HALO),
    # the host
    Series(
        "stream_in",
        "host",
        HARDWARE,
        {"one int32, quickest": 1_491, "one int32, slowest": 1_771},
        _PROFILING,
        is_source=True,
    ),
    Series(
        "stream_in", "host", HARDWARE, {"a float32 image": 37.3 * _MK1_MS, "a float16 image": 18.6 * _MK1_MS}, _WALL
    ),
    Series(
        "stream_out", "host", HARDWARE, {"a float32 image": 15.2 * _MK1_MS, "a float16 image": 8.3 * _MK1_MS}, _WALL
    ),
    # memory, bytes a tile
    Series("adder", "bytes, mean of tiles", MODEL, {"all": 4404}, _REPORT, is_source=True),
    Series("adder", "bytes, fullest tile", MODEL, {"all": 5780}, _REPORT, is_source=True),
    Series("adder", "bytes of stack, mean of tiles", MODEL, {"all": 3168}, _REPORT, is_source=True),
    Series("adder", "bytes of control code, mean of tiles", MODEL, {"all": 700}, _REPORT, is_source=True),
    Series("adder", "bytes of host exchange code, mean of tiles", MODEL, {"all": 289}, _REPORT, is_source=True),
    Series("adder", "bytes of code, mean of tiles", MODEL, {"all": 140}, _REPORT, is_source=True),
    # reductions of PopLibs, two stages
    Series(
        "two_stage_reduction",
        "total",
        MODEL,
        {(16, 4, 16, 32, 8, "max"): 1466, (16, 4, 16, 32, 8, "sum"): 1882, (16, 256, 1, 8, 4, "sum"): 2758},
        _POPLIBS,
    ),
    # hand-written kernels for six workers of one tile
    Series("kernel_add", "compute", HARDWARE, {576: 1068, 1728: 2220}, _ELEMENTWISE),
    Series("kernel_add", "compute", HARDWARE, {1152: 1368, 2152: 2124}, _PIPELINES),
    Series("kernel_gelu", "compute", HARDWARE, {2208: 8718}, _LOOPS),
    Series("kernel_reduction", "compute", HARDWARE, {(4, 2208): 4974, (15, 576): 3090}, _LOOPS),
    Series("kernel_layer_norm", "compute", HARDWARE, {1152: 6732}, _PIPELINES),
    Series("kernel_softmax", "compute", HARDWARE, {768: 12_258}, _PIPELINES),
    # Poplar's own vertices for the products of queries and keys, on the tile that takes longest
    Series("product_float16", "compute", HARDWARE, {(365, 80, 16): 8488}, _SDK),
    Series("product_float8", "compute", HARDWARE, {(365, 96, 16): 5502}, _SDK),
    # kernels written by hand
    Series("product_float16", "compute", HARDWARE, {(81, 80, 80): 12_402, (128, 64, 64): 19_872}, _GEMM),
    Series(
        "product_float8",
        "compute",
        HARDWARE,
        {
            (244, 128, 64): 18_576,
            (82, 192, 160): 29_508,
            (122, 160, 128): 26_232,
            (146, 96, 48): 7_122,
            (57, 128, 80): 8_124,
        },
        _GEMM,
    ),
    Series(
        "paired_send",
        "exchange",
        HARDWARE,
        {4096: 2213},
        f"{_STACK} docs/EXCHANGE_INSTRUCTION_REFERENCE.md @ 00a40d61, events until the last word is there",
    ),
)
