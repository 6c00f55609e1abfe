"""`axiom demo`: the three policies one after another, then table, figures and report."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, JustifyMethod
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from axiom_cli.demo.figures import Observation, PolicyRun
from axiom_cli.demo.plan import RATE_RPS, DemoPlan, demo_plan
from axiom_cli.demo.report import TABLE_HEAD, demo_report, table_row
from axiom_cli.demo.run import Listeners, run_policy
from axiom_cli.machine import commit, machine, version
from axiom_cli.output import print_figures, progress_console, table_console
from axiom_cli.stack.processes import ProcessDied
from axiom_cli.stack.topology import StackOptions, declared_adapters
from axiom_common.errors import InvalidInputError

POLICIES = ("round-robin", "least-loaded", "axiom")
REPEATS = 1
ERRORS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """`seconds` is the measured window of each policy."""

    seconds: float
    seed: int
    report: Path
    as_json: bool


async def demo(options: DemoOptions) -> None:
    """Run, print, write the report. Run directories are kept only when something went wrong."""
    console = progress_console()
    names = [spec.name for spec in declared_adapters(StackOptions(run_dir=Path()))]
    plan = demo_plan(names, seconds=options.seconds, seed=options.seed)
    _check_writable(options.report)
    run_dir = Path(tempfile.mkdtemp(prefix="axiom-demo-"))
    console.print(f"{_setting(plan, options)} Logs while it runs: {run_dir}")
    runs = []
    with _progress(console) as progress:
        for policy in POLICIES:
            task = progress.add_task(policy, total=len(plan.bodies), step="")
            stack_options = StackOptions(
                run_dir=run_dir / policy, default_profile=policy, seed=options.seed
            )
            runs.append(await run_policy(stack_options, plan, _listeners(progress, task, console)))
            progress.update(task, step="done")
    told = machine()
    facts = {
        "machine": f"{told['cpu']}, {told['cores']} cores, Python {told['python']}",
        "axiom": f"{version()}, commit {commit() or 'unknown'}",
        "seed": str(options.seed),
        "data": "Azure LLM inference trace 2023 (CC-BY 4.0) and ServeGen (Apache-2.0), trimmed",
    }
    html = demo_report(runs, setting=_setting(plan, options), facts=facts)
    options.report.write_text(html, encoding="utf-8")
    if options.as_json:
        print_figures(_figures(runs, options, told))
    else:
        table_console().print(demo_table(runs))
        table_console().print(f"report: {options.report}")
    if not _tell_failures(runs, console):
        shutil.rmtree(run_dir)


def _listeners(progress: Progress, task: TaskID, console: Console) -> Listeners:
    def on_step(step: str) -> None:
        progress.update(task, step=step)

    def on_death(died: ProcessDied) -> None:
        console.print(str(died), style="yellow")

    def on_end(_: Observation) -> None:
        progress.advance(task)

    return Listeners(on_step=on_step, on_death=on_death, on_end=on_end)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:<13}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[step]}", style="dim"),
        console=console,
    )


def _setting(plan: DemoPlan, options: DemoOptions) -> str:
    """What is run, in two sentences."""
    stack = StackOptions(run_dir=Path())
    slots = len(stack.engine_ids) * stack.engine.hbm_slots
    return (
        f"{stack.adapters} adapters on {slots} GPU slots of {len(stack.engine_ids)} simulated "
        f"engines, {len(plan.bodies)} requests at {RATE_RPS:g} a second for each of "
        f"{len(POLICIES)} policies, the first {plan.warm_up_ms / 1e3:g} s as warm-up. Half way "
        f"through the {options.seconds:g} s measured, popularity flips and one engine is killed; "
        "it comes back empty."
    )


def demo_table(runs: Sequence[PolicyRun]) -> Table:
    """The figures for a terminal; the last run is Axiom's and stands out."""
    # Tight enough that no head is cut at 80 columns.
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for head in TABLE_HEAD:
        justify: JustifyMethod = "left" if head == TABLE_HEAD[0] else "right"
        table.add_column(head.replace(" ", "\n", 1), justify=justify, no_wrap=True)
    for run in runs:
        table.add_row(*table_row(run), style="bold" if run is runs[-1] else None)
    return table


def _figures(
    runs: Sequence[PolicyRun], options: DemoOptions, told: dict[str, Any]
) -> dict[str, Any]:
    return {
        "policies": {run.policy: asdict(run.figures) for run in runs},
        "report": str(options.report),
        "machine": told,
        "commit": commit(),
        "seconds": options.seconds,
        "repeats": REPEATS,
    }


def _tell_failures(runs: Sequence[PolicyRun], console: Console) -> bool:
    """Say what failed requests were told; True when there are any."""
    failed = False
    for run in runs:
        if run.figures.failed:
            failed = True
            causes = Counter(seen.error for seen in run.observations if seen.error)
            for cause, count in causes.most_common(ERRORS_SHOWN):
                console.print(f"{run.policy}: {count} x {cause}", style="red", markup=False)
    return failed


def _check_writable(report: Path) -> None:
    """Fail before the run, not after it."""
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        with report.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise InvalidInputError(f"can't write the report: {error}", path="report") from error
