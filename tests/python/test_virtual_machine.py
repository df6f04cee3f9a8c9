"""Tests of how Cairn recognises a virtual machine."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.comparisons import a_run
from support.observers import Quiet

from cairn.doctor import machine
from cairn.doctor.machine_checks import judge_machine
from cairn.report import origin
from cairn.run.warm_memory import WarmMemory

X86 = "processor\t: 0\nflags\t\t: fpu sse2"
ARM = "processor\t: 0\nFeatures\t: fp asimd"
VENDOR, PRODUCT = "/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"
MACHINES: list[tuple[bool | None, dict[str, str]]] = [
    (False, {"/proc/cpuinfo": X86, VENDOR: "QEMU\n"}),
    (True, {"/proc/cpuinfo": f"{X86} hypervisor"}),
    (True, {"/proc/cpuinfo": ARM, VENDOR: "QEMU\n"}),
    (True, {"/proc/cpuinfo": ARM, VENDOR: "Google\n", PRODUCT: "Google Compute Engine\n"}),
    (True, {"/proc/cpuinfo": ARM, VENDOR: "Amazon EC2\n", PRODUCT: "c7g.large\n"}),
    (False, {"/proc/cpuinfo": ARM, VENDOR: "Amazon EC2\n", PRODUCT: "c7g.metal\n"}),
    (True, {"/proc/cpuinfo": ARM, "/sys/hypervisor/type": "xen\n"}),
    (True, {"/proc/cpuinfo": ARM, "/proc/device-tree/compatible": "linux,dummy-virt\0"}),
    (None, {"/proc/cpuinfo": ARM, VENDOR: "Ampere\n", PRODUCT: "Altra\n"}),
    (None, {}),
]
"""By machine: whether it is virtual, and its files."""


@pytest.mark.parametrize(("expected", "files"), MACHINES)
def test_a_virtual_machine_is_recognized_without_flags_of_x86(
    monkeypatch: pytest.MonkeyPatch, expected: bool | None, files: dict[str, str]
) -> None:
    """Every virtual machine with an ARM processor counted as physical."""
    monkeypatch.setattr(machine, "_read", files.get)
    monkeypatch.setattr(machine.os.path, "exists", lambda _: False)
    assert machine.host().virtual is expected


@pytest.mark.parametrize(
    ("virtual", "kind", "warms"),
    [(True, "virtual", True), (False, "physical", False), (None, "perhaps virtual", True)],
)
def test_a_machine_that_may_be_virtual_warms_its_memory(
    virtual: bool | None, kind: str, warms: bool
) -> None:
    run = a_run()
    run = replace(run, host=replace(run.host, virtual=virtual))
    assert f"({kind})" in str(origin.machine(run).rows)
    checks = judge_machine(machine.conditions(run.host, thorough=False))
    assert ("cold memory" in {one.subject for one in checks}) == warms
    assert WarmMemory(run, None, Quiet())._may_be_virtual == warms  # type: ignore[arg-type]
