"""YAML files and command lines into dataclasses, and back. The only module that knows the CLI library.

The dataclass is the schema: its fields are the keys of the YAML and the options of the command line, and the string
under each field is its help. Later sources win: defaults, then ``--config`` files and options in the order given.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import sys
import types
import warnings
from argparse import ArgumentError, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from jsonargparse import ArgumentParser, DefaultHelpFormatter, set_parsing_settings

from mlmf.errors import UserError, unknown_name

T = TypeVar("T")

set_parsing_settings(docstring_parse_attribute_docstrings=True)


def parse_config(schema: type[T], argv: Sequence[str] | None, *, prog: str, description: str, epilog: str = "") -> T:
    """Build a dataclass from ``--config`` files and options.

    Args:
        schema: a dataclass, whose fields may be dataclasses themselves (``--model.lora.r 8``).
        argv: the arguments without the program's name; ``None`` takes those of the process.
        prog: name of the program in ``--help``.
        description: first paragraph of ``--help``.
        epilog: last paragraph of ``--help``, such as example commands, printed as it is.

    Raises:
        UserError: unknown key, wrong type, missing or broken file; names the file, the key and the value.
        SystemExit: code 0, after ``--help`` or ``--print_config``.
    """
    hints = dict(leaves(schema))
    arguments = _join_lists(sys.argv[1:] if argv is None else argv, hints)
    for file in _config_files(arguments):
        _check_file(file, schema)
    _check_options(arguments, hints)
    parser = _parser(prog=prog, description=description, epilog=epilog)
    parser.add_argument("--config", action="config", help="YAML file of settings; may be given several times.")
    parser.add_argument("--print_config", action="store_true", help="Print the settings as YAML and exit.")
    parser.add_class_arguments(schema)
    try:
        values = parser.instantiate(parser.parse_args(arguments))
    except (ArgumentError, TypeError) as error:
        raise UserError(f"command line: {_one_line(error)}") from error
    config = schema(**{field.name: values[field.name] for field in dataclasses.fields(schema)})  # type: ignore[arg-type]
    if values["print_config"]:
        print(dump_config(config), end="")
        raise SystemExit(0)
    return config


def dump_config(config: object) -> str:
    """YAML of a dataclass that ``--config`` accepts back."""
    return yaml.dump(dataclasses.asdict(config), Dumper=_Dumper, sort_keys=False, width=119)  # type: ignore[call-overload]


def run_script(main: Callable[[], int]) -> NoReturn:
    """Run a script's ``main`` and exit: 2 with one line on a :class:`UserError`, 130 on Ctrl-C, else what it returns."""
    if not sys.warnoptions:
        # libraries warn each other about their next versions: nothing a user of a script can act on
        warnings.simplefilter("ignore")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in ("mlmf", "__main__"):  # a module run with -m logs as __main__
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    try:
        sys.exit(main())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        # a full disk, a folder that may not be written to, a file where a folder should be: named by the system itself
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _parser(**arguments: Any) -> ArgumentParser:
    return ArgumentParser(
        exit_on_error=False, allow_abbrev=False, print_config=None, formatter_class=_Formatter, **arguments
    )


def leaves(schema: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting that is not a group, as dotted key and type."""
    for name, hint in get_type_hints(schema).items():
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            yield from leaves(hint, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", hint


def _join_lists(argv: Sequence[str], hints: Mapping[str, Any]) -> list[str]:
    """Let options be given as people type them.

    ``--tasks locco locomo`` becomes ``--tasks ["locco", "locomo"]``, and a bare ``--overwrite`` becomes ``--overwrite true``.
    """
    joined: list[str] = []
    rest = list(argv)
    while rest:
        option = rest.pop(0)
        joined.append(option)
        if hints.get(option.removeprefix("--")) is bool and (not rest or rest[0].startswith("--")):
            joined.append("true")
        item = _item_type(hints.get(option.removeprefix("--"))) if option.startswith("--") else None
        if item is None:
            continue
        words = []
        while rest and not rest[0].startswith("--"):
            words.append(rest.pop(0))
        if len(words) == 1 and (words[0].startswith("[") or words[0] == "null"):
            joined += words
        elif words:
            joined.append(f"[{', '.join(json.dumps(word) if item is str else word for word in words)}]")
    return joined


def _item_type(hint: Any) -> Any:
    """The type of the items where a hint is a list or an optional list, else ``None``."""
    for option in _options(hint):
        if get_origin(option) is list:
            return get_args(option)[0]
    return None


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _config_files(argv: Sequence[str]) -> list[Path]:
    files = [argv[i + 1] for i in range(len(argv) - 1) if argv[i] == "--config"]
    return [Path(file) for file in [*files, *(a.removeprefix("--config=") for a in argv if a.startswith("--config="))]]


def _check_file(file: Path, schema: type) -> None:
    """Check a file before the library sees it, so that an error can name the file and the key."""
    if not file.is_file():
        raise UserError(f"config file {file}: {'is a folder' if file.is_dir() else 'no such file'}")
    try:
        with file.open(encoding="utf-8") as stream:  # a stream, so that the error names the file and not a string
            content = yaml.safe_load(stream)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"config file {file}: not valid YAML: {_one_line(error)}") from error
    _check_section(f"config file {file}", "", content, schema)


def _check_section(source: str, prefix: str, content: object, schema: type) -> None:
    if not isinstance(content, dict):
        where = f"{prefix.removesuffix('.')}: " if prefix else ""
        raise UserError(f"{source}: {where}expected settings as 'key: value', got {_show(content)}")
    hints = get_type_hints(schema)
    for key, value in content.items():
        if key not in hints:
            raise UserError(
                f"{source}: {unknown_name('key', f'{prefix}{key}', [f'{prefix}{name}' for name in hints])}"
            )
        hint = hints[key]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            _check_section(source, f"{prefix}{key}.", value, hint)
        else:
            check_value(source, f"{prefix}{key}", value, hint)


def _check_options(argv: Sequence[str], hints: Mapping[str, Any]) -> None:
    groups = {key.rsplit(".", depth)[0] for key in hints for depth in range(1, key.count(".") + 1)}
    known = {*hints, *groups, "config", "print_config", "help"}
    for index, argument in enumerate(argv):
        if not argument.startswith("--"):
            continue
        key, given, value = argument.removeprefix("--").partition("=")
        key = key.removesuffix("+")
        if key not in known:
            error = unknown_name("option", f"--{key}", [f"--{name}" for name in known - groups])
            raise UserError(f"{str(error).split(' Available:')[0]} See --help for all.")
        following = argv[index + 1 : index + 2]
        if key in hints and (given or following) and not argument.endswith("+"):
            check_value("command line", f"--{key}", value if given else following[0], hints[key])


def check_value(source: str, key: str, value: object, hint: Any) -> None:
    """Refuse a value that is not of the type of its setting; ``source`` and ``key`` say where it stands."""
    checker = _parser()
    checker.add_argument("--value", type=hint)
    # the library lets null pass for every type
    refused = value is None and type(None) not in _options(hint)
    if not refused:
        try:
            checker.parse_object({"value": value})
        except ArgumentError:
            refused = True
    if refused:
        raise UserError(f"{source}: {key}: expected {_type_name(hint)}, got {_show(value)}")


def _type_name(hint: Any) -> str:
    if hint is type(None):
        return "null"
    if get_origin(hint) is None:
        return getattr(hint, "__name__", str(hint))
    if len(_options(hint)) > 1:
        return " or ".join(_type_name(option) for option in _options(hint))
    if get_origin(hint) is list:
        return f"a list of {_type_name(get_args(hint)[0])}"
    return re.sub(r"^typing\.Literal\[(.*)\]$", r"one of \1", str(hint))


def _show(value: object) -> str:
    return "null" if value is None else repr(value)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


class _Formatter(RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Types and defaults as the library shows them, and the lines of the epilog left alone."""


class _Dumper(yaml.SafeDumper):
    """Writes paths as text, and lists on one line."""


_Dumper.add_multi_representer(Path, lambda dumper, path: dumper.represent_str(str(path)))
_Dumper.add_representer(
    list, lambda dumper, items: dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)
)
