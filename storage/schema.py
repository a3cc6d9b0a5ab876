"""Optuna's tables, and nothing else: makes them once, and refuses a database that was set up amiss."""

from __future__ import annotations

import warnings

import optuna
import sqlalchemy
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine

from objectives.contract import StorageError
from storage.address import Address
from storage.deadlines import Limits
from storage.engine import engine_settings, prepare

STUDIES = models.StudyModel.__table__
DIRECTIONS = models.StudyDirectionModel.__table__
STUDY_ATTRIBUTES = models.StudyUserAttributeModel.__table__
STUDY_SYSTEM_ATTRIBUTES = models.StudySystemAttributeModel.__table__
TRIALS = models.TrialModel.__table__
PARAMETERS = models.TrialParamModel.__table__
VALUES = models.TrialValueModel.__table__
CURVE_VALUES = models.TrialIntermediateValueModel.__table__
USER_ATTRIBUTES = models.TrialUserAttributeModel.__table__
SYSTEM_ATTRIBUTES = models.TrialSystemAttributeModel.__table__
HEARTBEATS = models.TrialHeartbeatModel.__table__

METRIC_NAMES = "study:metric_names"
"""Where Optuna keeps the names of a study's values."""

REVISION = "v3.2.0.a"
"""Optuna's schema revision that this package writes to."""


def exists(connection: Connection) -> bool:
    names = set(sqlalchemy.inspect(connection).get_table_names())
    return {"version_info", "alembic_version", "studies", "trials"} <= names


def is_ready(connection: Connection, address: Address) -> bool:
    """Whether Optuna's tables are there and whole; refuses those of another version.

    As Optuna checks it, but on one connection: hundreds of workers may open the database at once. The tables
    are made in several transactions, the versions last: until then they are somebody's work in progress.
    """
    if not exists(connection):
        return False
    versions = models.VersionInfoModel.__table__
    found = (
        connection.scalar(sqlalchemy.select(versions.c.schema_version)),
        connection.scalar(text("SELECT version_num FROM alembic_version")),
    )
    if None in found:
        return False
    if found != (models.SCHEMA_VERSION, REVISION):
        raise StorageError(
            f"{address.display} has tables of another Optuna version: schema {found[0]}, revision {found[1]}"
            f", not {models.SCHEMA_VERSION}, {REVISION}"
        )
    return True


def optuna_storage(address: Address, limits: Limits, *, create: bool) -> RDBStorage:
    """Optuna's own view of the database, after its own check of the schema; it keeps to the same limits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            # Optuna formats the URL as a template.
            storage = RDBStorage(
                address.text.replace("{", "{{").replace("}", "}}"),
                engine_kwargs=engine_settings(address),
                skip_table_creation=not create,
            )
        except (RuntimeError, AssertionError) as error:
            if isinstance(error, optuna.exceptions.StorageInternalError):
                raise
            raise StorageError(_incompatible(address, error)) from error
    found = storage.get_current_version()
    if found != REVISION:
        raise StorageError(f"{address.display} has Optuna's schema {found}, this version needs {REVISION}")
    # Connections made before the settings were attached must not be reused.
    prepare(storage.engine, address, limits)
    storage.engine.dispose()
    return storage


def _incompatible(address: Address, error: BaseException) -> str:
    return f"{address.display} has tables of another Optuna version: {' '.join(str(error).split())}"


def check_collation(engine: Engine, address: Address) -> None:
    """MySQL and MariaDB: names that differ in case only must not merge, and all of Unicode must fit."""
    if address.kind != "mysql":
        return
    with engine.connect() as connection:
        found = connection.execute(
            text(
                "SELECT default_character_set_name, default_collation_name FROM information_schema.schemata "
                "WHERE schema_name = DATABASE()"
            )
        ).one()
        columns = connection.execute(
            text(
                "SELECT character_set_name, collation_name FROM information_schema.columns "
                "WHERE table_schema = DATABASE() AND table_name IN ('trial_user_attributes', 'trial_params', "
                "'studies') AND collation_name IS NOT NULL"
            )
        ).all()
    for characters, collation in [found, *columns]:
        if characters != "utf8mb4" or not collation.endswith("_bin"):
            raise StorageError(
                f"{address.display} has the collation {collation}, which would merge or reject names: "
                f"use a database made with CREATE DATABASE {address.url.database} "
                "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
            )
