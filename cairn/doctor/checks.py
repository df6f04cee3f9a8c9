"""Puts all checks of cairn doctor into groups."""

from __future__ import annotations

from cairn.doctor.abilities import Abilities
from cairn.doctor.machine import Conditions
from cairn.doctor.machine_checks import judge_abilities, judge_machine
from cairn.doctor.program_checks import Diagnosis
from cairn.model import Examined, Host


def examined(
    diagnosis: Diagnosis | None, now: Conditions, can: Abilities, here: Host
) -> tuple[Examined, ...]:
    """Returns the groups in the order in which they are printed.

    Without a diagnosis, there is no group for the program.
    """
    groups = [
        Examined("machine", "How noisy is this machine?", judge_machine(now)),
        Examined("instruments", "What can be measured here?", judge_abilities(can, here)),
    ]
    if diagnosis is not None:
        name = (
            f"the allocator of {diagnosis.program.command}"
            if diagnosis.program
            else "its allocator"
        )
        groups.insert(0, Examined("program", f"Can {name} be swapped?", diagnosis.checks))
    return tuple(groups)
