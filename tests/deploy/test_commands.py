"""Commands, options and variables that docs/cluster.md and deploy/ name really exist."""

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import click
import pytest
import yaml

from tune_spaces.home import OBJECT_STORE_BYTES

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "cluster.md"
DEPLOY = ROOT / "deploy"
PROGRAMS = ("raise-rpm", "prefect", "ray", "mlflow")
_START = re.compile(
    r"""^\s*(?:exec\s+|.*"\$\{container\[@\]\}"\s+|docker\ compose\ .*\ exec\ worker\s+
        |docker\ run\ .*\ (?=raise-rpm\ )|\#\s+|ExecStart=)?(?:/opt/raise/bin/)?
        (?P<command>(?:raise-rpm|prefect|ray|mlflow)\s.*)$""",
    re.VERBOSE,
)
_OPERATORS = {"|", "||", "&&", "&", ";", ">", "2>", "<"}


def _filled(text: str) -> str:
    """Shell or Compose text with a number, which converts to anything, for what they fill in."""
    text = text.replace('"$@"', "").replace("$RAISE_RAY_OPTIONS", "")
    return re.sub(r"\$\(\(.*?\)\)|\$\{[^}]*\}|\$\w+", "1", text)


def _commands(text: str) -> Iterator[list[str]]:
    """Words of every command of one of the four programs in shell text."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if found := _START.match(line):
            try:
                words = shlex.split(_filled(found["command"]), comments=True)
            except ValueError:  # prose that happens to begin like a command
                continue
            stop = next((i for i, word in enumerate(words) if word in _OPERATORS), len(words))
            yield words[:stop]


def _blocks(language: str) -> str:
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL))


WORKER = ["bash", "/opt/raise/worker.sh"]


def _compose_commands() -> Iterator[list[str]]:
    for service in yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values():
        words = [*service.get("entrypoint", ()), *service.get("command", ())]
        if words and words[0] in PROGRAMS:
            yield [_filled(word) for word in words]
        elif words == WORKER:
            yield from _commands(_worker_script())


def _kuberay_commands() -> Iterator[list[str]]:
    text = (DEPLOY / "kuberay.yaml").read_text()
    yield from _commands(text)
    if f"command: [{', '.join(WORKER)}]" in text:
        yield from _commands(_worker_script())


def _worker_script() -> str:
    """What :data:`WORKER` runs, as it is in the repository."""
    return (DEPLOY / "worker.sh").read_text()


def _slurm_commands() -> Iterator[list[str]]:
    text = (DEPLOY / "slurm.sbatch").read_text()
    yield from _commands(text)
    # Ray's common options are in an array, those of each role on the lines that start it.
    common = re.search(r'ray=\(.*?"\$\{container\[@\]\}" (ray start .*?)\)\n', text, re.DOTALL)
    assert common
    roles = re.findall(r'"\$\{ray\[@\]\}" (--.*?)\n(?!    )', text, re.DOTALL)
    assert len(roles) == 2
    for role in roles:
        yield shlex.split(_filled((common[1] + " " + role).replace("\\\n", " ")))


SOURCES = {
    "docs/cluster.md": lambda: _commands(_blocks("bash")),
    "compose.yaml": _compose_commands,
    "slurm.sbatch": _slurm_commands,
    "kuberay.yaml": _kuberay_commands,
    "systemd": lambda: _commands(
        "\n".join(unit.read_text() for unit in sorted((DEPLOY / "systemd").iterdir()))
    ),
    "prefect.yaml": lambda: _commands((ROOT / "prefect.yaml").read_text().split("name:")[0]),
}
COMMANDS = [(source, words) for source, found in SOURCES.items() for words in found()]


def _parse_click(group: click.Command, words: Sequence[str]) -> None:
    """:raises click.UsageError: for an unknown command or option, or a missing argument."""
    assert isinstance(group, click.Group)
    with click.Context(group) as context:
        name, *rest = words
        command = group.get_command(context, name)
        if command is None:
            raise click.UsageError(f"no command {name}")
        if isinstance(command, click.Group):
            _parse_click(command, rest)
        else:
            command.make_context(name, rest, parent=context)


@pytest.fixture(scope="module", autouse=True)
def _variables(tmp_path_factory):
    """Parsers convert what they read: words that a shell or Compose would fill in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(tmp_path_factory.mktemp("prefect")))
        yield


def _parse(words: Sequence[str]) -> None:
    program, *rest = words
    if program == "raise-rpm":
        from flows.cli import cli

        _parse_click(cli, rest)
    elif program == "ray":
        from ray.scripts.scripts import cli as ray

        _parse_click(ray, rest)
    elif program == "mlflow":
        _check_mlflow(rest)
    else:
        from prefect.cli._app import _app

        tokens = [word for word in rest if word != "--no-prompt"]
        _app.parse_args(tokens, exit_on_error=False, print_error=False)


def _check_mlflow(words: Sequence[str]) -> None:
    """Names alone, in the sources: importing its command line imports the database layer."""
    text = _package_text("mlflow/cli/__init__.py", "mlflow/utils/cli_args.py")
    if f"def {words[0]}(" not in text:
        raise click.UsageError(f"no command {words[0]}")
    for word in words[1:]:
        if word.startswith("--") and f'"{word.partition("=")[0]}"' not in text:
            raise click.UsageError(f"no option {word}")


@pytest.mark.parametrize(
    ("source", "words"), COMMANDS, ids=[f"{s}: {' '.join(w)[:60]}" for s, w in COMMANDS]
)
def test_the_command_and_its_options_exist(source, words):
    _parse(words)


def test_commands_are_found_everywhere():
    found = {source: {words[0] for s, words in COMMANDS if s == source} for source in SOURCES}
    assert found["docs/cluster.md"] == {"raise-rpm", "prefect"}
    assert found["compose.yaml"] == set(PROGRAMS)
    assert found["slurm.sbatch"] == set(PROGRAMS)
    assert found["kuberay.yaml"] == {"raise-rpm", "prefect", "ray"}
    assert found["systemd"] == {"prefect", "mlflow", "ray"}
    assert found["prefect.yaml"] == {"raise-rpm", "prefect"}


@pytest.mark.parametrize(
    "source", ["docs/cluster.md", "compose.yaml", "kuberay.yaml", "prefect.yaml"]
)
def test_whoever_deploys_has_lost_runs_marked(source):
    words = [words for s, words in COMMANDS if s == source]
    deployed = [number for number, w in enumerate(words) if w[0] == "prefect" and "deploy" in w]
    assert deployed
    assert all(words[number + 1] == ["raise-rpm", "watch"] for number in deployed)


def test_a_worker_has_one_run_at_a_time():
    started = [words for _, words in COMMANDS if words[:3] == ["prefect", "worker", "start"]]
    assert len(started) >= 4
    assert all(words[words.index("--limit") + 1] == "1" for words in started)


def test_every_ray_node_has_the_object_store_of_a_cluster_of_our_own():
    started = [
        (source, words) for source, words in COMMANDS
        if words[:2] == ["ray", "start"] and re.search("--(head|address)", " ".join(words))
    ]  # fmt: skip
    assert {source for source, _ in started} == set(SOURCES) - {"docs/cluster.md", "prefect.yaml"}
    for source, words in started:
        assert f"--object-store-memory={OBJECT_STORE_BYTES}" in words, (source, words)
    cluster = next(yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text()))["spec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group["rayStartParams"]["object-store-memory"] == str(OBJECT_STORE_BYTES)


@pytest.mark.parametrize(
    "words",
    [
        ["raise-rpm", "doctr"],
        ["raise-rpm", "doctor", "--nothing"],
        ["ray", "start", "--tempdir=x"],
        ["mlflow", "server", "--app", "basic-auth", "--nothing"],
        ["prefect", "worker", "start", "--pol", "x"],
    ],
)
def test_what_does_not_exist_is_found(words):
    with pytest.raises(Exception, match=r"(?i)no (such )?(command|option)|unknown"):
        _parse(words)


# Variables

_NAME = re.compile(r"\b(?:RAISE|PREFECT|MLFLOW|RAY|AWS|SLURM|SRUN)_[A-Z0-9_]+\b")


def _named() -> set[str]:
    files = [DOCUMENT, ROOT / "flows" / "cluster_settings.py", *DEPLOY.rglob("*")]
    text = "\n".join(file.read_text() for file in files if file.is_file())
    return set(_NAME.findall(text))


@cache
def _package_text(*patterns: str) -> str:
    """Sources of installed packages, and strings of Ray's C++ half."""
    import ray

    site = Path(ray.__file__).parents[1]
    return "\n".join(
        file.read_bytes().decode("latin-1") for pattern in patterns for file in site.glob(pattern)
    )


def _own_text() -> str:
    folders = ("raise_model", "artifacts", "tune_spaces", "flows", "deploy")
    files = [f for d in folders for f in (ROOT / d).rglob("*") if f.suffix in (".py", ".sbatch")]
    units = (ROOT / "deploy").rglob("*.service")
    others = [ROOT / "Dockerfile", ROOT / "deploy" / "compose.yaml", *units]
    return "\n".join(file.read_text() for file in [*files, *others])


def _is_read(name: str) -> bool:
    family = name.partition("_")[0]
    if family == "RAISE":
        # Somewhere a value is asked for, not only set.
        pattern = rf'environ(?:\.get\(|\[)?"?.*{name}|\$\{{?{name}\b|"{name}"'
        return re.search(pattern, _own_text()) is not None
    if family in ("SLURM", "SRUN"):
        return True  # made by Slurm
    if family == "PREFECT":
        from prefect.settings.legacy import _get_settings_fields
        from prefect.settings.models.root import Settings

        # The name of a profile is what settings are looked up by, and none itself.
        return name in _get_settings_fields(Settings) or name == "PREFECT_PROFILE"
    if family == "MLFLOW":
        return f'"{name}"' in _package_text(
            "mlflow/environment_variables.py", "mlflow/cli/*.py", "mlflow/utils/cli_args.py"
        )
    if family == "RAY":
        text = _package_text(
            "ray/_private/*.py", "ray/_private/*/*.py", "ray/_common/*.py", "ray/_common/*/*.py",
            "ray/train/*.py", "ray/train/*/*.py", "ray/tune/*.py", "ray/scripts/*.py",
            "ray/_raylet.so",
        )  # fmt: skip
        return name in text
    return name in _package_text("botocore/*.py")


@pytest.mark.parametrize("name", sorted(_named()))
def test_the_variable_is_read_by_someone(name):
    assert _is_read(name), f"nobody reads {name}"


def test_a_variable_that_nobody_reads_is_found():
    for name in ("RAISE_NOTHING", "PREFECT_NOTHING", "MLFLOW_NOTHING", "RAY_NOTHING_AT_ALL"):
        assert not _is_read(name)


# Files


def test_files_that_the_document_names_exist():
    named = set(re.findall(r"(?:deploy|docs)/[\w./-]+\w", DOCUMENT.read_text()))
    made = {"deploy/cluster.env", "deploy/servers.env"}
    assert {name for name in named - made if not (ROOT / name).exists()} == set()
    assert {"deploy/compose.yaml", "deploy/kuberay.yaml", "deploy/slurm.sbatch"} <= named


def test_links_within_the_document_have_a_target():
    text = DOCUMENT.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= anchors
