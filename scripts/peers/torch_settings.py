"""
torch_settings.py - what may make PyTorch faster on a CPU, for compare_torch.py to try.

An environment, libraries to preload, fields of a job. Which of them help differs between
machines: on an AMD processor of 2024 the first one halves a step, and the others are worth a
few percent or cost as much. Not here: Intel's OpenMP runtime, which keeps threads on cores that
the code of torch.compile, with GNU's runtime, then crowds on.
"""
import ctypes.util
import dataclasses
import os
import pathlib
import subprocess


@dataclasses.dataclass
class Setting:
    """Something that may make PyTorch faster: environment, libraries to preload, job fields."""
    name: str
    env: dict = dataclasses.field(default_factory=dict)
    preload: tuple = ()
    job: dict = dataclasses.field(default_factory=dict)

    def __add__(self, other):
        return Setting("; ".join(filter(None, (self.name, other.name))),
                       {**self.env, **other.env}, self.preload + other.preload,
                       {**self.job, **other.job})


def is_amd():
    """Whether the processor is AMD's."""
    try:
        return "AuthenticAMD" in pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def candidates(folder):
    """Groups of settings, of which each can add its fastest at most; files go to `folder`."""
    if is_amd():
        # MKL chooses slower kernels where the processor isn't Intel's. It asks this function.
        library = folder / "mkl_intel.so"
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wl,-z,now", "-x", "c", "-",
                        "-o", str(library)], input=b"int mkl_serv_intel_cpu_true(void) { return 1; }",
                       check=True)
        yield [Setting("MKL with its kernels for Intel", preload=(str(library),))]
    kept = str(1 << 40)
    memory = [Setting("glibc: huge pages, memory kept",
                      env={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0"
                                             f":glibc.malloc.trim_threshold={kept}"
                                             f":glibc.malloc.top_pad={64 << 20}"})]
    for name, env in (("jemalloc", {"MALLOC_CONF": "thp:always,dirty_decay_ms:-1,"
                                                   "muzzy_decay_ms:-1"}),
                      ("tcmalloc_minimal", {"TCMALLOC_RELEASE_RATE": "0"})):
        library = ctypes.util.find_library(name)
        if library:
            memory.append(Setting(f"{name}, memory kept", env=env, preload=(library,)))
    yield memory
    yield [Setting("threads sleep while they wait", env={"OMP_WAIT_POLICY": "passive"}),
           Setting("threads spin while they wait", env={"OMP_WAIT_POLICY": "active"})]
    yield [Setting("loss in chunks", job={"chunked_loss": True})]
