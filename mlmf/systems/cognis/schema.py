"""The tables of the SQLite store, and how a file of an older version becomes one of this version."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from mlmf.errors import UserError

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
        # AUTOINCREMENT: the number of a deleted user is never given again
        "CREATE TABLE users (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE) STRICT",
        """
        CREATE TABLE memories (
            row INTEGER PRIMARY KEY AUTOINCREMENT,
            user INTEGER NOT NULL REFERENCES users ON DELETE CASCADE,
            id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL,
            speaker TEXT NOT NULL,
            text TEXT NOT NULL,
            said TEXT,
            session INTEGER NOT NULL,
            position INTEGER NOT NULL,
            turn_ids TEXT NOT NULL,
            chain TEXT NOT NULL,
            entities TEXT NOT NULL,
            spans TEXT NOT NULL,
            topic TEXT NOT NULL,
            version INTEGER NOT NULL,
            replaces_id TEXT,
            is_current INTEGER NOT NULL,
            closed TEXT,
            pending INTEGER NOT NULL
        ) STRICT
        """,
        "CREATE INDEX memories_written ON memories (user, row)",
        "CREATE INDEX memories_said ON memories (user, said)",
        "CREATE INDEX memories_position ON memories (user, position)",
        "CREATE INDEX memories_speaker ON memories (user, speaker)",
        "CREATE INDEX memories_chain ON memories (user, chain)",
        "CREATE INDEX memories_topic ON memories (user, topic) WHERE topic <> '' AND is_current",
        "CREATE INDEX memories_pending ON memories (user) WHERE pending",
        # apart from the rest, so that reading records does not read over their vectors
        """
        CREATE TABLE vectors (
            row INTEGER PRIMARY KEY REFERENCES memories ON DELETE CASCADE, vector BLOB NOT NULL
        ) STRICT
        """,
        """
        CREATE TABLE cursors (
            user INTEGER NOT NULL REFERENCES users ON DELETE CASCADE,
            name TEXT NOT NULL,
            row INTEGER NOT NULL,
            PRIMARY KEY (user, name)
        ) STRICT, WITHOUT ROWID
        """,
    ),
)
"""The statements of the step from each version to the next; a file's version is its ``user_version``."""


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring a file to the newest version, all steps or none; a new file starts at version 0.

    Raises:
        UserError: the file comes from a newer version of this program, or is another program's.
    """
    connection.execute("BEGIN IMMEDIATE")  # two processes that open a new file take turns
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > len(MIGRATIONS):
            raise UserError(
                f"{path}: made by a newer version of mlmf (schema {version}, this one knows {len(MIGRATIONS)}); "
                "upgrade mlmf, or give another file"
            )
        if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise UserError(f"{path}: an SQLite file, but no store of Cognis; give another file")
        for step in MIGRATIONS[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
