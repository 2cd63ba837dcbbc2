"""The S3 protocol server, and a bucket for each test."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from sources.bucket import BUCKET, KEY_ID, SECRET, Proxy, Source, environment  # noqa: E402


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    os.environ.update(environment(SECRET))
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def source(moto: str, tmp_path: Path) -> Iterator[Source]:
    urllib.request.urlopen(urllib.request.Request(f"{moto}/moto-api/reset", method="POST"), timeout=10).read()
    credentials = {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=moto, **credentials)
    client.create_bucket(Bucket=BUCKET)
    proxy = Proxy(moto)
    proxy.start()
    yield Source(proxy, client, tmp_path / "cache")
    proxy.resume.set()
    proxy.stop()
