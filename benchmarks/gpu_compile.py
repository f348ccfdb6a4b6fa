"""Compiled for a GPU on a machine that has none, by the compiler of JAX's CUDA plug-in.

In come a jitted function and shapes; out comes what the compiled program would launch, hold and read, in numbers. The
plug-in is not installed beside JAX, where it would be the default, but in a folder of its own, and a process that
compiles is told of it by `environment`. Nothing is run, and no time of a GPU is known.

All that is used of JAX beside its public API stands in this file: `jax._src.xla_bridge.register_plugin` and
`canonicalize_platform`, `jax._src.lib.xla_client.register_custom_call_handler` with the plug-in's own, by which it
knows calls of cuSOLVER, `jax._src.lib._jax.hlo_module_cost_analysis`, and a topology of a machine that is only
described. Tried with jax and jaxlib 0.10.2, jax-cuda12-plugin and jax-cuda12-pjrt 0.10.2, nvidia-cuda-nvcc-cu12
12.9.86.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.gpu_counts import (
    AROUND,
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

FOLDER = "CUDA_WHEELS"
"""The environment variable that says where the wheels are."""

DEFAULT = Path.home() / ".cache" / "codelet" / "cuda_wheels"
"""Where they are looked for without it."""

WHEELS = ("jax-cuda12-plugin==0.10.2", "jax-cuda12-pjrt==0.10.2", "nvidia-cuda-nvcc-cu12==12.9.86")
"""What is needed: the extra `gpu-check`, in a folder of its own."""

_CONFIG = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  cuda_compute_capability {{ major: {major} }}
  {numbers}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 7 }}
runtime_version {{ major: 12 minor: 8 patch: 0 }}
device_description_str: "{name}"
"""


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, by what XLA asks of one.

    Attributes:
        name: as XLA calls it.
        architecture: as `ptxas` calls it.
        config: its target configuration, as text.
    """

    name: str
    architecture: str
    config: str


def _described(name: str, architecture: str, major: int, **numbers: float) -> Gpu:
    text = "\n  ".join(f"{key}: {value}" for key, value in numbers.items())
    return Gpu(name, architecture, _CONFIG.format(name=name, major=major, numbers=text))


GPUS = {
    "h100": _described(
        "NVIDIA H100 80GB HBM3",
        "sm_90a",
        9,
        shared_memory_per_core=233_472,
        shared_memory_per_block_optin=232_448,
        core_count=132,
        fpus_per_core=128,
        memory_bandwidth=3_352_320_000_000,
        l2_cache_size=52_428_800,
        clock_rate_ghz=1.98,
        device_memory_size=84_929_347_584,
    ),
    "a100": _described(
        "NVIDIA A100-SXM4-80GB",
        "sm_80",
        8,
        shared_memory_per_core=167_936,
        shared_memory_per_block_optin=166_912,
        core_count=108,
        fpus_per_core=64,
        memory_bandwidth=2_039_000_000_000,
        l2_cache_size=41_943_040,
        clock_rate_ghz=1.41,
        device_memory_size=84_987_740_160,
    ),
}
"""The GPUs that are compiled for. Numbers are of NVIDIA's white papers, in XLA's terms."""


class NoWheels(Exception):
    """The compiler for GPUs is not there; it says how to get it."""


def wheels() -> Path:
    """The folder with the compiler's wheels.

    Raises:
        NoWheels: they are not there.
    """
    folder = Path(os.environ.get(FOLDER, DEFAULT))
    if not (folder / "jax_plugins" / "xla_cuda12" / "xla_cuda_plugin.so").exists() or not _ptxas(folder).exists():
        raise NoWheels(
            f"there is no compiler for GPUs in {folder}. It is 573 MB, in a folder of its own, since JAX would else "
            f"look for a GPU:\n\n    pip install --no-deps --target {folder} {' '.join(WHEELS)}\n\n"
            f"Another folder: the environment variable {FOLDER}."
        )
    return folder


def _ptxas(folder: Path) -> Path:
    return folder / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"


_DUMP = "CODELET_GPU_DUMP"


def environment(dump: str) -> dict[str, str]:
    """The environment of a process that compiles for GPUs, as XLA looks at it when JAX is imported.

    Algorithms are not tried out, as there is nothing to try them on: products are library calls, as are convolutions.
    Where a program aborts, its results are NaN: an error is raised by a call of the host, which is not compiled without
    a GPU.

    Args:
        dump: a folder for what XLA writes, of this process alone.
    """
    cuda = wheels() / "nvidia" / "cuda_nvcc"
    flags = (
        *("--xla_gpu_autotune_level=0", "--xla_gpu_enable_triton_gemm=false", "--xla_gpu_enable_cublaslt=false"),
        *(f"--xla_gpu_cuda_data_dir={cuda}", f"--xla_dump_to={dump}"),
    )
    own = {"XLA_FLAGS": " ".join(flags), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    own |= {"EQX_ON_ERROR": "nan", _DUMP: dump}
    paths = {"PATH": cuda / "bin", "PYTHONPATH": _solvers()}
    own |= {name: os.pathsep.join([*filter(None, [os.environ.get(name)]), str(path)]) for name, path in paths.items()}
    return {**os.environ, **own}


def _solvers() -> Path:
    """A folder with the plug-in's calls of libraries alone: with the plug-in itself JAX would look for a GPU."""
    folder = wheels() / "solvers"
    folder.mkdir(exist_ok=True)
    link = folder / "jax_cuda12_plugin"
    if not link.exists():
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..", "jax_cuda12_plugin"), target_is_directory=True)  # the folder may be moved
    return folder


@dataclass(frozen=True)
class Compiled:
    """What a compiled program would launch, hold and read.

    Attributes:
        launches: how many kernels, and where.
        temporaries: bytes that it holds beside what it is given and gives.
        scratch: those of them that products of libraries ask for: 32 MiB on an H100, 4 MiB on an A100, once.
        accessed: bytes that it reads and writes by XLA's count of the optimized program, a loop's turn once, and what
            library calls are given and give, of which XLA counts nothing.
        swaps: atomic updates that are loops of compare-and-swap.
        spilled: bytes stored for want of registers.
        seconds: that XLA took to compile it.
    """

    launches: Launches
    temporaries: int
    scratch: int
    accessed: int
    swaps: int
    spilled: int
    seconds: float

    @property
    def held(self) -> int:
        """Temporary memory without the scratch memory of libraries, which may lie where results come to lie."""
        return max(0, self.temporaries - self.scratch)


@functools.cache
def _registered() -> None:
    """Tell JAX of the plug-in. It has no devices, so JAX's own list of platforms does not name it."""
    import jax_cuda12_plugin.cuda_plugin_extension as extension  # pyright: ignore[reportMissingImports]
    from jax._src import xla_bridge
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

    library = wheels() / "jax_plugins" / "xla_cuda12" / "xla_cuda_plugin.so"
    api = xla_bridge.register_plugin("cuda", priority=-500, library_path=str(library), options={})
    register = functools.partial(extension.register_custom_call_target, api)
    xla_client.register_custom_call_handler("CUDA", register)
    known = xla_bridge.canonicalize_platform

    def with_cuda(platform: str) -> str:
        try:
            return known(platform)
        except RuntimeError:
            if platform in ("gpu", "cuda"):
                return "cuda"
            raise

    xla_bridge.canonicalize_platform = with_cuda


@functools.cache
def _sharding(gpu: str) -> Any:
    """Of arrays on a GPU that is only described."""
    import jax
    from jax.experimental import topologies

    _registered()
    topology = topologies.get_topology_desc(platform="cuda", target_config=GPUS[gpu].config, topology="1x1x1")
    return jax.sharding.SingleDeviceSharding(topology.devices[0])


def on_gpu(tree: Any, gpu: str) -> Any:
    """Arrays as their shapes and dtypes, on a GPU that is only described; all else as it is."""
    import jax

    placed = _sharding(gpu)

    def leaf(own: Any) -> Any:
        if not hasattr(own, "shape") or not hasattr(own, "dtype"):
            return own
        return jax.ShapeDtypeStruct(own.shape, jax.dtypes.canonicalize_dtype(own.dtype), sharding=placed)

    return jax.tree.map(leaf, tree)


def lower_for(gpu: str, jitted: Callable[..., Any], *arguments: Any) -> Any:
    """A jitted function as StableHLO for a GPU.

    Args:
        gpu: a name of `GPUS`.
        jitted: the function, of `jax.jit`.
        arguments: arrays, or their shapes and dtypes, in pytrees.
    """
    return jitted.trace(*on_gpu(arguments, gpu)).lower(lowering_platforms=("cuda",))  # type: ignore[attr-defined]


def compile_for(gpu: str, lowered: Any) -> Compiled:
    """What of `lower_for` is compiled. Only in a process whose environment is that of `environment`."""
    import jax
    from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage]

    dump = Path(os.environ[_DUMP])
    shutil.rmtree(dump, ignore_errors=True)
    dump.mkdir()
    start = time.perf_counter()
    compiled = lowered.compile()
    seconds = time.perf_counter() - start
    (module,) = compiled.runtime_executable().hlo_modules()
    costs = _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)
    hlo = compiled.as_text()
    (sequence,) = dump.glob("*.thunk_sequence.txt")
    (metadata,) = dump.glob("*.thunk_metadata.txt")
    trips = trip_counts(hlo)
    turns = {number: trips[name] for number, name in loop_names(metadata.read_text()).items() if name in trips}
    ptx = [path.read_text() for path in dump.glob("*.ptx")]
    return Compiled(
        launches(sequence.read_text(), turns),
        compiled.memory_analysis().temp_size_in_bytes,
        scratch_bytes(hlo),
        max(0, int(costs.get("bytes accessed", 0))) + library_bytes(hlo),
        sum(map(compare_and_swaps, ptx)),
        sum(_spilled(own, GPUS[gpu].architecture) for own in ptx if may_spill(own)),
        seconds,
    )


def counted_by(gpu: str) -> tuple[str, ...]:
    """All that a count depends on beside the program."""
    return (gpu, GPUS[gpu].config, version("jaxlib"), *WHEELS, *Compiled.__dataclass_fields__, *sorted(AROUND))


@functools.lru_cache(maxsize=1024)
def _spilled(ptx: str, architecture: str) -> int:
    """The bytes that kernels of PTX store for want of registers, by `ptxas` itself."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        command = [str(_ptxas(wheels())), "-v", f"-arch={architecture}", file.name, "-o", os.devnull]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return spilled_bytes(done.stderr + done.stdout)
