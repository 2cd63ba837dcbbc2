"""deploy/compose.yaml against the schema of the Compose specification and against the files it names."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml
from programs import ROOT

COMPOSE = ROOT / "deploy/compose.yaml"


@pytest.fixture(scope="module")
def services() -> dict:
    return yaml.safe_load(COMPOSE.read_text())["services"]


def test_the_file_is_valid() -> None:
    schema = os.environ.get("COMPOSE_SCHEMA")
    if not schema:
        pytest.skip("no schema of the Compose specification: the stage could not fetch Debian's docker-compose")
    jsonschema.Draft7Validator(json.loads(Path(schema).read_text())).validate(yaml.safe_load(COMPOSE.read_text()))


def test_the_image_is_the_one_that_the_script_builds(services: dict) -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert services["tessera"]["image"] == f"tessera:{version}"


def test_prometheus_has_its_files_and_reaches_the_server(services: dict) -> None:
    mounted = {volume.split(":")[0] for volume in services["prometheus"]["volumes"] if volume.startswith("./")}
    assert mounted and all((COMPOSE.parent / folder / "prometheus.yml").is_file() for folder in mounted)
    assert services["prometheus"]["network_mode"] == "service:tessera"
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    (target,) = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    containerfile = (ROOT / "deploy/image/Containerfile").read_text()
    listening = re.search(r"TESSERA_SERVER_METRICS=\S+:(\d+)", containerfile)
    assert listening and target == f"127.0.0.1:{listening[1]}"


def test_the_server_has_no_privileges_and_time_to_drain(services: dict) -> None:
    server = services["tessera"]
    assert server["read_only"] and server["cap_drop"] == ["ALL"] and server["security_opt"] == ["no-new-privileges:true"]
    assert server["healthcheck"]["test"] == ["CMD", "/usr/bin/tessera", "health"]
    assert int(server["stop_grace_period"].removesuffix("s")) > 20
    assert all(port.startswith("127.0.0.1:") for port in server["ports"])
