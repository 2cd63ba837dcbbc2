"""A model repository at a URL: the example `mirror` of the crate `model-store` against a real S3 protocol server, moto's.

`MIRROR_BIN` names the example (default: target/release/examples/mirror, or the debug one). Only loopback addresses are used.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import boto3

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fixtures.wait import until  # noqa: E402
from sources.bucket import BUCKET, KEY_ID, SECRET, Source, environment, example  # noqa: E402

BIG_BYTES = 64 << 20

REPOSITORY = {
    "resnet/config.pbtxt": b'backend: "onnxruntime"\n',
    "resnet/1/model.onnx": b"first version" * 1000,
    "resnet/2/model.onnx": b"second version" * 1000,
    "tiny.onnx": b"tiny",
    "empty/config.pbtxt": b"",
}


def upload(source: Source, content: dict[str, bytes]) -> None:
    for key, body in content.items():
        source.put(key, body)


def test_the_first_mirror_is_the_repository(source: Source) -> None:
    upload(source, REPOSITORY)
    source.client.put_object(Bucket=BUCKET, Key="production/other.onnx", Body=b"another prefix")
    answer = source.mirror("etag_is_md5=true")
    size = sum(map(len, REPOSITORY.values()))
    report = answer["report"]
    assert (report["objects"], report["added"], report["bytes"]) == (5, 5, size)
    assert report["bytes_downloaded"] == source.proxy.content_bytes == size
    source.expect(answer, REPOSITORY)


def test_without_a_change_nothing_is_downloaded(source: Source) -> None:
    upload(source, REPOSITORY)
    first = source.mirror()
    source.proxy.reset()
    again = source.mirror()
    assert not source.proxy.gets()
    assert again["report"]["bytes_downloaded"] == 0
    assert again["report"]["bytes_reused"] == sum(map(len, REPOSITORY.values()))
    assert again["folder"] == first["folder"]


def test_one_changed_file_and_a_removed_model(source: Source) -> None:
    upload(source, REPOSITORY)
    first = source.mirror()
    source.put("resnet/2/model.onnx", b"better")
    source.delete("tiny.onnx")
    source.proxy.reset()
    answer = source.mirror()
    report = answer["report"]
    assert (report["added"], report["changed"], report["removed"]) == (0, 1, 1)
    assert report["bytes_downloaded"] == source.proxy.content_bytes == len(b"better")
    content = REPOSITORY | {"resnet/2/model.onnx": b"better"}
    del content["tiny.onnx"]
    source.expect(answer, content)
    assert not Path(first["folder"]).exists()


def test_a_killed_download_resumes(source: Source) -> None:
    big = b"".join(hashlib.sha256(str(block).encode()).digest() for block in range(BIG_BYTES // 32))
    upload(source, REPOSITORY | {"big/1/model.onnx": big})
    source.proxy.stall_after = BIG_BYTES // 2
    process = subprocess.Popen(source.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(SECRET))
    assert source.proxy.stalled.wait(60)
    parts = source.cache / "parts"
    # The last MiB may not be written yet.
    until(lambda: any(part.stat().st_size >= BIG_BYTES // 2 - (2 << 20) for part in parts.glob("*.part")), "no part")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close(), process.stderr.close()
    assert not (source.cache / "current").is_symlink(), "half a snapshot"
    [kept] = [part.stat().st_size for part in parts.glob("*.part") if part.stat().st_size]
    source.proxy.stall_after = None
    source.proxy.resume.set()
    source.proxy.reset()
    answer = source.mirror()
    report = answer["report"]
    assert report["bytes_resumed"] == kept
    assert report["bytes_downloaded"] <= source.proxy.content_bytes <= BIG_BYTES - kept + sum(map(len, REPOSITORY.values()))
    [ranged] = [headers for _, path, headers in source.proxy.gets() if "big/1" in path]
    assert ranged["range"] == f"bytes={kept}-{BIG_BYTES - 1}"
    assert ranged["if-match"] == f'"{hashlib.md5(big).hexdigest()}"'
    source.expect(answer, REPOSITORY | {"big/1/model.onnx": big})
    assert not list(parts.iterdir())


def test_an_object_that_changes_while_the_download_is_interrupted(source: Source) -> None:
    old, new = os.urandom(8 << 20), os.urandom(8 << 20)
    upload(source, {"big/1/model.onnx": old})
    source.proxy.stall_after = 4 << 20
    process = subprocess.Popen(source.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(SECRET))
    assert source.proxy.stalled.wait(60)
    process.kill()
    process.wait()
    source.proxy.stall_after = None
    source.proxy.resume.set()
    upload(source, {"big/1/model.onnx": new})
    answer = source.mirror()
    assert answer["report"]["bytes_resumed"] == 0
    source.expect(answer, {"big/1/model.onnx": new})


def test_wrong_credentials_are_an_error_without_the_secret(source: Source, moto: str) -> None:
    upload(source, REPOSITORY)

    def check_signatures_after(requests: str) -> None:
        url, kind = f"{moto}/moto-api/reset-auth", {"Content-Type": "text/plain"}
        urllib.request.urlopen(urllib.request.Request(url, requests.encode(), kind), timeout=10).read()

    check_signatures_after("0")
    try:
        answer = source.mirror(code=1, secret="wrong-secret-of-the-tests")
    finally:
        check_signatures_after("inf")
    assert answer["label"] == "denied"
    assert answer["error"].startswith(f"model repository s3://{BUCKET}/prod: access denied: expected credentials that")
    assert "InvalidAccessKeyId" in answer["error"] and KEY_ID not in answer["error"]


def test_a_server_that_is_down_leaves_the_last_snapshot(source: Source) -> None:
    source.proxy.stop()
    answer = source.mirror("--retry-timeout-ms=1000", code=1)
    assert answer["label"] == "unavailable" and "Connection refused" in answer["error"], answer
    source.proxy.start()
    upload(source, REPOSITORY)
    first = source.mirror()
    source.proxy.stop()
    answer = source.mirror("--retry-timeout-ms=1000", code=3)
    assert (answer["fresh"], answer["folder"], answer["label"]) == (False, first["folder"], "unavailable")
    source.expect(answer, REPOSITORY)
    source.proxy.start()


def test_hostile_keys_are_refused_by_name(source: Source) -> None:
    table = [("a/../../escape", "a part `..`"), ("a//b", "an empty part"), ("x" * 300, "300 bytes")]
    for key, words in table:
        upload(source, {"good.onnx": b"good", key: b"bad"})
        answer = source.mirror(code=1)
        assert answer["label"] == "key" and words in answer["error"] and key in answer["error"], answer
        source.delete(key)
    assert not list((source.cache / "blobs").iterdir())
    assert source.mirror()["report"]["objects"] == 1


def test_folder_markers_of_consoles_are_not_files(source: Source) -> None:
    upload(source, {"": b"", "m/": b"", "m/1/": b"", "m/1/model.onnx": b"model"})
    source.expect(source.mirror(), {"m/1/model.onnx": b"model"})


def test_an_upload_in_parts(source: Source) -> None:
    content = os.urandom(12 << 20)
    config = boto3.s3.transfer.TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
    path = source.cache.parent / "big"
    path.write_bytes(content)
    source.client.upload_file(str(path), BUCKET, "prod/big.onnx", Config=config)
    answer = source.mirror("etag_is_md5=true")
    source.expect(answer, {"big.onnx": content})
    assert source.mirror()["report"]["bytes_downloaded"] == 0


def test_a_bucket_that_does_not_exist_and_a_prefix_without_objects(source: Source) -> None:
    answer = source.mirror(code=1, url="s3://nowhere/prod")
    assert "NoSuchBucket" in answer["error"], answer
    source.cache = source.cache.with_name("other")
    answer = source.mirror(code=1)
    assert answer["label"] == "empty" and "check the bucket and the prefix" in answer["error"]


def test_a_repository_larger_than_the_cache(source: Source) -> None:
    upload(source, REPOSITORY)
    size = sum(map(len, REPOSITORY.values()))
    answer = source.mirror("--bytes-max=1000", code=1)
    assert answer["label"] == "too_large" and f"has {size} bytes" in answer["error"] and "is 1000" in answer["error"]


def test_many_objects_are_listed_in_pages(source: Source) -> None:
    content = {f"m{index}/1/model.onnx": str(index).encode() for index in range(1100)}
    upload(source, content)
    answer = source.mirror()
    assert sum("list-type" in path for _, path, _ in source.proxy.requests) == 2
    source.expect(answer, content)


def test_processes_share_a_cache_folder(source: Source) -> None:
    upload(source, REPOSITORY)
    started = [subprocess.Popen(source.command(), stdout=subprocess.PIPE, text=True, env=environment(SECRET)) for _ in range(4)]
    answers = [json.loads(process.communicate(timeout=120)[0]) for process in started]
    size = sum(map(len, REPOSITORY.values()))
    assert sum(answer["report"]["bytes_downloaded"] for answer in answers) == source.proxy.content_bytes == size
    assert len({answer["folder"] for answer in answers}) == 1


def test_a_plain_https_server_without_a_listing_says_so(source: Source, tmp_path: Path) -> None:
    class Plain(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Plain) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/models"
        command = [str(example()), url, str(tmp_path / "plain"), "allow_http=true", "--retry-timeout-ms=500"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(SECRET))
        server.shutdown()
    answer = json.loads(told.stdout)
    assert told.returncode == 1 and "listing needs a WebDAV server, which answers PROPFIND" in answer["error"], answer
