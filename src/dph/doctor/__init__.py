"""`dph doctor`: checks whether this machine can run DPH-RL, and says how to fix what does not work."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from dph.config import DoctorConfig
from dph.doctor.finding import Finding, broken
from dph.errors import UserError

__all__ = ["doctor"]

_COLOURS = {"ok": "green", "note": "yellow", "broken": "red"}


def doctor(config: DoctorConfig) -> list[Finding]:
    """Run all checks and print each result as it arrives, or all results as JSON at the end.

    Raises UserError, after all results have been printed, if anything that is needed does not work.
    """
    from dph.doctor import gpu, machine, sandbox, smoke

    out = Path(config.out)
    parts: dict[str, Callable[[], list[Finding]]] = {
        "installation": machine.check_installation,
        "processors": lambda: [*machine.check_processors(), *gpu.check_gpus()],
        "memory and disk": lambda: machine.check_room(out),
        "sandbox": sandbox.check_sandbox,
    }
    if config.smoke:
        parts["smoke run"] = lambda: smoke.check_smoke(config.device)
    console = Console()
    findings: list[Finding] = []
    for title, check in parts.items():
        try:
            found = check()
        except Exception as error:  # a failed check is a finding; the other checks still run
            found = [broken(title, f"{type(error).__name__}: {error}", "please report this with the full output")]
        findings += found
        if not config.json:
            _print(console, title, found)
    wrong = [finding.name for finding in findings if finding.status == "broken"]
    if config.json:
        said = {"ok": not wrong, "findings": [asdict(finding) for finding in findings]}
        json.dump(said, sys.stdout, indent=1, ensure_ascii=False)
        print()
    if wrong:
        raise UserError(f"needed, but broken: {', '.join(wrong)}; the output above says how to fix it")
    return findings


def _print(console: Console, title: str, findings: list[Finding]) -> None:
    console.print(title.capitalize(), style="bold")
    for finding in findings:
        console.print(f"  {finding.status:<7}", style=_COLOURS[finding.status], end="", highlight=False)
        _plain(console, f"{finding.name}: {finding.detail}")
        if finding.advice:
            _plain(console, f"           → {finding.advice}")


def _plain(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
