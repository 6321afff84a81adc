"""Accounts of compiled programs: made in processes of their own, kept as they come, compared."""

import argparse
import json
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import command, timing
from train.foundation.errors import UserError, first_line
from train.planning.targets import find_target

Account = dict[str, Any]
Accounts = dict[str, Account]
# Makes the account of the program with this name.
Make = Callable[[str], Account]

SECONDS_OF_A_PROGRAM = 1800
# What may not grow, each with the part by which it may: another version of the compiler packs
# memory differently.
MAY_GROW = {"sorts": 0.0, "loops": 0.0, "messages": 0.0, "temporary": 0.1}
_NOT_WORTH_A_WORD = 2**16


def collect(
    names: Sequence[str],
    make: Make,
    *,
    kept: dict[str, Any],
    output: Path | None,
    processes: int,
    seconds: int = SECONDS_OF_A_PROGRAM,
) -> Accounts:
    """The accounts of programs. Programs that the output file has are not compiled again.

    Args:
        names: the names of the programs.
        make: makes the account of one of them; a function of a module, because other processes call
            it.
        kept: what the file has beside the accounts.
        output: a file that gets the accounts as they come, sorted by name.
        processes: compilers side by side.
        seconds: a program without an account by then is reported as that.
    """
    found: Accounts = {}
    if output is not None and output.exists():
        found = json.loads(output.read_text())["programs"]
    missing = [name for name in names if name not in found]
    writing = threading.Lock()

    def keep(name: str, account: Account) -> None:
        with writing:
            found[name] = account
            if output is not None:
                command.write(kept | {"programs": dict(sorted(found.items()))}, output)

    with ThreadPoolExecutor(processes) as pool:
        shares = [missing[first::processes] for first in range(processes)]
        list(pool.map(lambda share: _compile_all(share, make, keep, seconds), shares))
    return {name: found[name] for name in sorted(found)}


def report(
    names: Sequence[str],
    make: Make,
    *,
    device: str,
    output: Path | None,
    against: Path | None = None,
    processes: int = 1,
    seconds: int = SECONDS_OF_A_PROGRAM,
) -> None:
    """Writes the accounts of programs to the output file, prints them, or compares them.

    Args:
        names: as for `collect`.
        make: as for `collect`.
        device: what the programs are for.
        output: as for `collect`; without it and `against`, the accounts are printed.
        against: a file of accounts that may not have grown.
        processes: as for `collect`.
        seconds: as for `collect`.
    """
    kept = {"machine": timing.machine(), "device": device}
    found = collect(names, make, kept=kept, output=output, processes=processes, seconds=seconds)
    if against is not None:
        compare(against, found)
    elif output is None:
        command.write(kept | {"programs": found}, None)


def committed(benchmark: str, device: str) -> Accounts:
    """The committed accounts of a benchmark for a device; empty if nothing is committed."""
    path = Path(__file__).parent / "results" / f"{benchmark}-{device}.json"
    found: Accounts = json.loads(path.read_text())["programs"] if path.exists() else {}
    return found


def find_compiler(parser: argparse.ArgumentParser, device: str) -> None:
    """Ends the command if the compiler is not installed. JAX then computes only on the CPU."""
    try:
        find_target(device)
    except UserError as error:
        parser.error(str(error))


def failure(error: Exception) -> Account:
    """The account of a program that could not be compiled."""
    return {"failed": f"{type(error).__name__}: {first_line(error)[:200]}"}


def failures(programs: Accounts) -> Iterator[str]:
    """The programs that could not be compiled, and why, in Markdown."""
    for name, account in programs.items():
        if "failed" in account:
            yield f"`{name}`: {account['failed']}"


def cell(account: Account | None, show: Callable[[Account], str]) -> str:
    """What a table shows of a program; why it failed if it did, and a dash if it was not tried."""
    if account is None:
        return "–"
    return str(account["failed"]) if "failed" in account else show(account)


def tested(found: Iterable[Account]) -> str:
    """How many of the programs were compiled, and for how long, in words."""
    seconds = [account["seconds"] for account in found if "failed" not in account]
    return f"{len(seconds)} of these programs took the compiler {sum(seconds) / 60:.0f} minutes."


def compare(against: Path, now: Accounts) -> None:
    """Prints what has grown since the accounts of a file, and exits with 1 if anything has."""
    grown = list(growth(json.loads(against.read_text())["programs"], now))
    print("\n".join(grown) or f"{len(now)} programs, none of which grew")  # noqa: T201
    sys.exit(bool(grown))


def growth(before: Accounts, now: Accounts) -> Iterator[str]:
    """What has grown, in words."""
    for name, account in now.items():
        if "failed" in account:
            if "failed" not in before.get(name, {}):
                yield f"{name}: {account['failed']}"
            continue
        old = before.get(name)
        if old is None or "failed" in old:
            if account["sorts"] and "K" in name:
                yield f"{name}: is new and has {account['sorts']} sorts"
            continue
        for what, part in MAY_GROW.items():
            slack = _NOT_WORTH_A_WORD if what == "temporary" else 0
            if account[what] > old[what] * (1 + part) + slack:
                yield f"{name}: {what} grew from {old[what]:,} to {account[what]:,}"


def _compile_all(names: Sequence[str], make: Make, keep: Callable[..., None], seconds: int) -> None:
    """Keeps the accounts; a compiler that crashes or hangs costs one program."""
    # A forked process would inherit the locks of JAX's threads.
    context = multiprocessing.get_context("spawn")
    left = list(names)
    while left:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_send, args=(sender, make, left))
        process.start()
        sender.close()
        failed = "the compiler ended the process"
        try:
            while receiver.poll(seconds):
                name, account = receiver.recv()
                left.remove(name)
                keep(name, account)
            failed = f"more than {seconds} s"
        except EOFError:
            pass
        process.kill()
        process.join()
        if left:
            keep(left.pop(0), {"failed": failed})


def _send(sender: Any, make: Make, names: Sequence[str]) -> None:
    for name in names:
        try:
            account = make(name)
        except Exception as error:
            account = failure(error)
        sender.send((name, account))
