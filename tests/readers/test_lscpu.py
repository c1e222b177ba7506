"""lscpu in several languages, and the CPUs of Windows."""

import pytest

from gpudoctor.facts.cpu import Cpu
from gpudoctor.facts.host import Host
from gpudoctor.readers.lscpu import read, read_cpu

ENGLISH = """\
Architecture:            x86_64
CPU(s):                  64
On-line CPU(s) list:     0-47
Model name:              AMD EPYC 7543 32-Core Processor
Core(s) per socket:      32
Socket(s):               2
Hypervisor vendor:       KVM
NUMA node(s):            2
NUMA node0 CPU(s):       0-31
"""
GERMAN = """\
Architektur:                             x86_64
CPU(s):                                  16
Liste der Online-CPU(s):                 0-15
Modellname:                              AMD Ryzen 7
Kern(e) pro Sockel:                      8
Sockel:                                  1
NUMA-Knoten:                             1
"""
FRENCH = """\
Architecture :                          x86_64
Processeur(s) :                         12
Liste de processeur(s) en ligne :       0-11
Nom de modèle :                         Intel(R) Core(TM) i7-8750H CPU @ 2.20GHz
Cœur(s) par socket :                    6
Socket(s) :                             1
Nœud(s) NUMA :                          1
"""
CHINESE = """\
架构：                   x86_64
CPU:                     8
在线 CPU 列表：          0-7
型号名称：               Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz
每个座的核数：           4
座：                     2
NUMA 节点：              2
"""


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        (ENGLISH, Cpu(model="AMD EPYC 7543 32-Core Processor", count=48, cores=64, numa_nodes=2)),
        (GERMAN, Cpu(model="AMD Ryzen 7", count=16, cores=8, numa_nodes=1)),
        (FRENCH, Cpu(model="Intel(R) Core(TM) i7-8750H CPU @ 2.20GHz", count=12, cores=6, numa_nodes=1)),
        (CHINESE, Cpu(model="Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz", count=8, cores=8, numa_nodes=2)),
    ],
    ids=["english", "german", "french", "chinese"],
)
def test_any_language_is_read(text: str, cpu: Cpu) -> None:
    assert read_cpu(text) == cpu


def test_a_hypervisor_makes_a_virtual_machine() -> None:
    found = read(ENGLISH)
    assert found is not None
    assert found.host == Host(virtual_machine=True)
    bare = read(GERMAN)
    assert bare is not None
    assert bare.host is None


def test_a_word_about_cpus_is_none() -> None:
    assert read("CPU(s): busy\nno GPU") is None
