"""The command line: `python -m pcfg_artifact [run options]`, or `python -m pcfg_artifact TOOL ...`."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from pcfg_artifact import __version__
from pcfg_artifact.errors import EXTRAS, ArtifactError, MissingPackageError, UsageError, missing_package

# Each is a module of pcfg_artifact.tools with add_arguments(parser), run(args) -> exit code, and an EXAMPLE; the module
# has the tool's name, or where a stage has that name the one in MODULE_OF.  `bench` is benchmarks/bench.py of a clone.
TOOLS = {
    "learn": "learn a grammar from a treebank",
    "zoo": "list grammars by name, with their sizes, ambiguity and exact floors",
    "sample": "draw sentences or trees from a grammar",
    "parse": "parse sentences, or score a grammar on a treebank",
    "mask": "rank the words that fit a masked position",
    "next": "rank what can come next after the first words of a sentence",
    "surprisal": "surprisal of every word under a grammar, and under a causal model",
    "bench": "measure speed and memory, ours against others",
    "construct": "build the transformer of a theorem from a grammar and run it on a sentence",
    "probe": "layer-wise F1 of any encoder folder on any treebank",
    "intervene": "tell a model that words belong together, and compare it with exact inference",
    "states": "F1 of the latent-variable PCFG against its number of states",
    "compare": "say what differs between two runs, largest first",
    "scale": "put the base models of several runs side by side, by size",
    "export": "write the sampled corpora of a run as a datasets.DatasetDict",
    "record": "run a profile with one more seed and record what it gives",
    "doctor": "check this machine, and say how to fix what is missing",
    "compile": "compile the fast routines now, which the first run would do otherwise",
}
MODULE_OF = {"construct": "construct_transformer", "intervene": "intervene_model", "probe": "probe_encoder",
             "sample": "draw"}
LIGHT_STAGES = ("grammar", "sample", "marginals", "approximate")  # that need no extra; `verify` needs that of reports
OUT_VARIABLE = "PCFG_ARTIFACT_OUT"  # where the image writes; elsewhere `runs`


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    is_tool = bool(arguments) and not arguments[0].startswith("-")
    interrupts: list[int] = []
    before = _note_interrupts(interrupts)
    try:
        code = _run_tool(arguments[0], arguments[1:]) if is_tool else _run_pipeline(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a full disk can still be said
        return code
    except ArtifactError as error:
        _say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt as error:
        return _interrupted(getattr(error, "number", signal.SIGINT))
    except BrokenPipeError:  # the reader of our output (head, less) has had enough
        _drop_output()
        return 0
    except UnicodeEncodeError as error:
        _say(f"error: standard output is {error.encoding}, which cannot show {error.object[error.start:error.end]!r}; "
             f"set PYTHONIOENCODING=utf-8")
        _drop_output()
        return 2
    except OSError as error:  # the machine refused what nobody foresaw: a full disk, a name that is too long
        where = f" ({str(error.filename)[:200]})" if error.filename else " (standard output?)"
        _say(f"error: {error.strerror or error}{where}; correct it and run the same command again")
        _drop_output()
        return 2
    except MemoryError as error:
        _say(f"error: there is not enough memory ({error or 'the machine gave none'}); give shorter sentences or a "
             f"smaller grammar")
        return 2
    except Exception as error:
        if interrupts:  # Ctrl-C while a compiled module is imported arrives as the ImportError of that module
            return _interrupted()
        what = f"`{arguments[0]}`" if is_tool else "the pipeline"
        if isinstance(error, ModuleNotFoundError) and (missing := missing_package(error, what)):
            _say(f"error: {missing}")
            return missing.exit_code
        raise
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _note_interrupts(interrupts: list[int]) -> Any:
    """Remember every Ctrl-C beside raising KeyboardInterrupt; returns the handler before, None where it stays."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        return None

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    return before


def _interrupted(number: int = signal.SIGINT) -> int:
    print("interrupted; the same command continues where this one stopped", file=sys.stderr)
    return 128 + number


def _say(text: str) -> None:
    """One message on standard error; names of files may hold bytes that are no text."""
    print(text.encode(errors="backslashreplace").decode(), file=sys.stderr)


def _drop_output() -> None:
    """What is still in the buffer of standard output goes nowhere, so that closing it cannot fail again."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose complaints are UsageErrors, so that every refusal looks the same."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}; see `{self.prog} --help`")


def _run_tool(name: str, arguments: Sequence[str]) -> int:
    if name not in TOOLS:
        raise UsageError(f"unknown tool {name!r}; the tools are {', '.join(TOOLS)}, `run_all.sh test` runs the test "
                         f"suite, and without a tool name the pipeline runs (see --help)")
    return _tool(name).run(tool_parser(name).parse_args(arguments))


def tool_parser(name: str) -> argparse.ArgumentParser:
    module = _tool(name)
    parser = _Parser(prog=f"run_all.sh {name}", description=module.__doc__, epilog=f"example: {module.EXAMPLE}",
                     formatter_class=argparse.RawDescriptionHelpFormatter)
    module.add_arguments(parser)
    return parser


def _tool(name: str) -> Any:
    module = "benchmarks.bench" if name == "bench" else f"pcfg_artifact.tools.{MODULE_OF.get(name, name)}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if name != "bench" or error.name not in (module, "benchmarks"):
            raise
        raise UsageError("the benchmarks are not part of the installed package; use `./run_all.sh bench` in a clone of "
                         "the repository, or the image") from None


def pipeline_parser() -> argparse.ArgumentParser:
    from pcfg_artifact.run import config, pipeline  # here, so that a tool does not pay for it

    tools = "\n".join(f"  {name:<10} {what}" for name, what in TOOLS.items())
    stages = "\n".join(f"  {stage.name:<10} {stage.what}" for stage in pipeline.STAGES)
    parser = _Parser(
        prog="run_all.sh", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run the pipeline from treebank, or grammar, to verdict; the exit code is the verdict.",
        epilog=f"stages:\n{stages}\n\ntools (run_all.sh TOOL --help):\n  {'test':<10} run the test suite\n{tools}\n\n"
               f"example: run_all.sh --profile reduced --treebank craft_penn.zip")
    parser.add_argument("--profile", default="smoke", help=f"one of {', '.join(config.profile_names())} (smoke)")
    parser.add_argument("--out", metavar="DIR", help="output folder (runs/PROFILE)")
    parser.add_argument("--treebank", metavar="SOURCE", help="embedded, nltk, or a folder, zip or file of trees")
    parser.add_argument("--grammar", metavar="SOURCE",
                        help="in place of a treebank: a rule file, a grammar folder, rules of NLTK, or zoo:NAME (see "
                             "the tool zoo)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                        help="change one value of the profile, e.g. sample.n_validation=100; may be repeated")
    parser.add_argument("--from", dest="first", metavar="STAGE", help="start at this stage")
    parser.add_argument("--to", dest="last", metavar="STAGE", help="stop after this stage")
    parser.add_argument("--only", metavar="STAGE", help="run this stage alone")
    parser.add_argument("--force", action="store_true", help="make the selected stages from nothing")
    parser.add_argument("--skip-bad-trees", action="store_true", help="leave out malformed trees, and list them")
    parser.add_argument("--follow", type=Path, metavar="RUN",
                        help="help to train the models of RUN, which another machine runs (docs/SCALE.md)")
    parser.add_argument("--deadline", type=float, default=300.0, metavar="SECONDS",
                        help="how long --follow waits for a sign of the first machine (300)")
    parser.add_argument("--log", choices=["tensorboard"],
                        help="repeat the progress of training there, below DIR/pretrain/scratch")
    parser.add_argument("--executor", metavar="dask://HOST:PORT",
                        help="a Dask cluster for the jobs of marginals, probe and control (docs/SCALE.md)")
    parser.add_argument("--version", action="version", version=f"pcfg_artifact {__version__}")
    parser.add_argument("--dry-run", action="store_true", help="print the plan with its costs, and do nothing")
    return parser


def _run_pipeline(arguments: Sequence[str]) -> int:
    from pcfg_artifact.run import config, pipeline, plan

    parser = pipeline_parser()
    args = parser.parse_args(arguments)
    if args.follow is not None:
        from pcfg_artifact.workers.distributed import follow  # here, because most runs have one machine

        if parser.parse_args(["--follow", str(args.follow), "--deadline", str(args.deadline)]) != args:
            raise UsageError("--follow RUN takes the settings of that run; leave out all other options but --deadline")
        follow(args.follow.absolute(), _say, args.deadline)
        return 0
    settings = args.settings + (["grammar.skip_bad_trees=true"] if args.skip_bad_trees else [])
    settings += ["machine.log=tensorboard"] if args.log else []
    profile = config.load_profile(args.profile, settings, args.treebank, args.grammar)
    stages_to_run = pipeline.select(args.first, args.last, args.only)
    if args.out is not None and not args.out.strip():
        raise UsageError("--out is empty; give a folder, `.` is the current one")
    out = Path(args.out or Path(os.environ.get(OUT_VARIABLE, "runs")) / profile.name)
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file; give a folder")
    if args.executor is not None:
        from pcfg_artifact.workers.distributed import check_address, connect  # Dask itself is imported by connect

        check_address(args.executor)
        if profile.machine.scratch is not None:
            raise UsageError("machine.scratch is a disk of one machine, and the workers of --executor are elsewhere; "
                             "leave one of the two out")
    _refuse_without_extras([stage.name for stage in stages_to_run])
    if args.dry_run:
        print(plan.describe(profile, out, stages_to_run, force=args.force))
        return 0
    if args.executor is not None:
        with connect(args.executor):  # before the first hour: whether it answers, and runs this code
            pass
    from pcfg_artifact.workers.distributed import leading

    with leading(out):
        return pipeline.run(profile, out, stages_to_run, force=args.force, executor=args.executor)


def _refuse_without_extras(stages: Sequence[str]) -> None:
    """Refuse before the first stage what a later one would miss."""
    for stage in stages:
        extra = "report" if stage == "verify" else "models"
        for package in () if stage in LIGHT_STAGES else EXTRAS[extra]:
            if find_spec(package) is None:
                raise MissingPackageError(package, f"the stage {stage}")
