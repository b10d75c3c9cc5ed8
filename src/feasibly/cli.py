"""The command line: thin commands over the public API, and what becomes of their errors.

Nothing heavy is imported before a command runs, so that `feasibly --help` answers at once.
"""

from __future__ import annotations

import traceback
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from feasibly._cli import data_commands, model_commands, report_commands, signals
from feasibly._cli.case_command import case
from feasibly._cli.certify_command import certify
from feasibly._cli.console import say
from feasibly._cli.demo import demo
from feasibly._cli.export_command import export
from feasibly._cli.options import ListsMethods
from feasibly._cli.screen_command import screen
from feasibly._cli.serve_command import serve
from feasibly._cli.train_command import train
from feasibly._version import __version__
from feasibly.problem.errors import FeasiblyError

BAD_INPUT = 2
BUG = 1


class _Commands(TyperGroup):
    """Turns errors into sentences and exit statuses, and takes `--debug` wherever it stands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args
        if "--debug" in own:
            args = ["--debug", *(word for word in own if word != "--debug"), *args[len(own) :]]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            say(str(interrupt) or "interrupted; nothing was left half-written")
            status = signals.status()
        except FeasiblyError as error:
            status = _explain(f"error: {error}", BAD_INPUT, ctx)
        except BrokenPipeError:
            raise
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            status = _explain(f"error: {where}{error.strerror or error}", BAD_INPUT, ctx)
        except MemoryError as error:
            status = _explain(
                f"error: there is not enough memory for this; {error}".rstrip("; "), BAD_INPUT, ctx
            )
        except Exception as error:
            # Typer's own (a wrong option, --help) know their status and how to show themselves.
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort):
                raise
            kind = type(error).__name__
            status = _explain(
                f"error: this is a bug in feasibly ({kind}: {error}); run the same command with --debug and "
                "report what it prints",
                BUG,
                ctx,
            )
        raise typer.Exit(status)


def _explain(sentence: str, status: int, ctx: Any) -> int:
    if ctx.params.get("debug"):
        traceback.print_exc()
    say(sentence)
    return status


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"feasibly {__version__}")
        raise typer.Exit()


app = typer.Typer(
    name="feasibly",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def _feasibly(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; before or after the command.")
    ] = False,
) -> None:
    """Fast stand-ins for a solver, learnt from a few hundred solved instances of one problem.

    The usual way: look at a grid (case), solve some instances of it (label), learn from them (train), and
    answer new ones (predict). evaluate measures the answers, certify says what may be promised of them.
    Start with: feasibly demo
    """


_importers = typer.Typer(help="Import solved instances from public datasets.", no_args_is_help=True)
_importers.command("opfdata", short_help="from OPFData")(data_commands.import_opfdata)
_importers.command("pglearn", short_help="from PGLearn")(data_commands.import_pglearn)
_importers.command("gridfm", short_help="from GridFM's datakit")(data_commands.import_gridfm)

app.command("demo", short_help="the main job on defaults, in under two minutes")(
    signals.apart(demo, data_commands.COURTESY)
)
app.command("case", short_help="show what a grid file holds")(case)
app.command("label", short_help="draw instances and solve them")(
    signals.apart(data_commands.label, data_commands.COURTESY, data_commands.on_cluster)
)
app.add_typer(_importers, name="import", short_help="import solved instances")
app.command("train", cls=ListsMethods, short_help="learn a proxy from solved instances")(train)
app.command("predict", short_help="answer the rows of a file")(signals.apart(model_commands.predict))
app.command("inputs", short_help="write a file of inputs to start from")(model_commands.inputs)
app.command("evaluate", short_help="measure answers against solved instances")(
    signals.apart(model_commands.evaluate)
)
app.command("certify", short_help="say what may be promised of the answers")(signals.apart(certify))
app.command("compare", cls=ListsMethods, short_help="every method and answer in one table")(
    signals.apart(report_commands.compare, report_commands.COURTESY)
)
app.command("screen", short_help="every hour of a profile under every outage")(
    signals.apart(screen, data_commands.COURTESY)
)
app.command("serve", short_help="answers over HTTP, and a page to ask for them")(serve)
app.command("export", short_help="a file for another runtime")(signals.apart(export))
app.command("reproduce", cls=ListsMethods, short_help="the paper's tables and figures, by name")(
    signals.apart(report_commands.reproduce, report_commands.COURTESY)
)


_USUAL = warnings.formatwarning


def _in_a_sentence(message: Any, category: type[Warning], *place: Any, **line: Any) -> str:
    """Our own warnings are about the user's files, and where in the code they were noticed says nothing."""
    if category.__module__.startswith("feasibly."):
        return f"{message}\n"
    return _USUAL(message, category, *place, **line)


def main() -> None:
    """Run the command line and leave with its status."""
    signals.install()
    warnings.formatwarning = _in_a_sentence
    code: Any = 0
    try:
        app(prog_name="feasibly")
    except KeyboardInterrupt:
        code = signals.status()
    except SystemExit as leaving:
        code = signals.status() if leaving.code == signals.INTERRUPTED else leaving.code
    signals.leave(code if isinstance(code, int) else 0 if code is None else BUG)


if __name__ == "__main__":
    main()
