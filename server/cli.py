"""The command line, `duet`: it reads arguments, calls one function, and returns its exit code.

What the commands do lives in `app`, `doctor`, `provision` and `sandbox.images`. They are imported
where they are called, so that `duet --version` needs none of them.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from server.doctor import Status
    from server.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Rooms where people, bots and an agent share one sandbox and see everything live.",
)
images_app = typer.Typer(no_args_is_help=True, help="The images that sandboxes start from.")
app.add_typer(images_app, name="images")


def main() -> None:
    """Run the command line; the entry point `duet`."""
    app()


def fail(message: str) -> NoReturn:
    """Say what is wrong in one line and exit with 1."""
    typer.echo(f"duet: {message}", err=True)
    raise typer.Exit(1)


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; a wrong one is told by its name, and ends the program with 1.

    ``overrides`` are the command line's; those that are None were not given.
    """
    from pydantic import ValidationError

    from server.settings import Settings

    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        problems = "; ".join(
            f"DUET_{'_'.join(map(str, problem['loc'])).upper()}: {problem['msg']}"
            for problem in error.errors()
        )
        fail(problems)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - the shape typer calls
    if not wanted:
        return
    try:
        typer.echo(f"duet {version('duet')}")
    except PackageNotFoundError:
        typer.echo("duet (not installed)")
    raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 picks a free one.", show_default="8080")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the server's data.", show_default="data")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            help="The agent's model: `local`, or as DUET_AGENT_MODEL.", show_default="none"
        ),
    ] = None,
) -> None:
    """Serve the page, the API and the rooms on one port until stopped."""
    settings = load_settings(host=host, port=port, data_dir=data_dir, agent_model=agent)
    from server.app import serve as serve_app

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        status = runner.run(serve_app(settings))
    raise typer.Exit(status)


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:  # Windows has none
        return None
    return uvloop.new_event_loop


@app.command()
def doctor(
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Install and start what is missing.")] = False,
    tests: Annotated[bool, typer.Option("--tests", help="The tests' browser counts too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    done_steps: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Say what Duet finds on this machine, what is missing, and how to get it."""
    from server import doctor as doctor_
    from server import provision

    settings = load_settings()
    fixed = not fix or provision.fix(settings, tests=tests, done_steps=done_steps)
    checks = doctor_.examine(settings, tests=tests)
    complete = fixed and doctor_.is_complete(checks)
    if as_json:
        typer.echo(doctor_.as_json(checks))
    elif complete and done_steps:
        typer.echo(doctor_.as_line(checks))
    else:
        typer.echo(doctor_.as_table(checks, _colour))
    raise typer.Exit(0 if complete else 1)


def _colour(status: Status) -> str:
    colours = {"ok": "green", "note": "cyan", "warn": "yellow", "missing": "red"}
    if not sys.stdout.isatty():
        return str(status)
    return typer.style(str(status), fg=colours[status])


@images_app.command("build")
def build_images(
    names: Annotated[
        list[str] | None, typer.Argument(help="All of them when none is named.")
    ] = None,
) -> None:
    """Build the sandbox images that are missing or older than what they are made of."""
    from server import provision_images
    from server.provision_shell import SetupError, Steps

    steps = Steps(total=1)
    wanted = names or provision_images.NAMES
    steps.begin(f"Building the sandbox images ({', '.join(wanted)})")
    try:
        provision_images.build(load_settings().docker_host, steps, wanted)
    except SetupError as error:
        steps.close()
        fail(str(error))
    steps.close()
    typer.echo(f"Ready: {', '.join(wanted)}")


if __name__ == "__main__":
    main()
