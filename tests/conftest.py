"""What tests of several packages need."""

import time

import pytest

from raise_model.store import Store


@pytest.fixture(scope="module")
def s3_server():
    """Address of a server that speaks S3."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def s3_store(s3_server, monkeypatch):
    """An empty store in a bucket of its own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    bucket = f"bucket-{time.monotonic_ns()}"
    made = Store(f"s3://{bucket}/prefix")
    made.filesystem.mkdir(bucket)
    return made


@pytest.fixture(params=["file", "s3"])
def any_store(request, tmp_path):
    """An empty store, once in a folder and once on S3."""
    if request.param == "file":
        return Store(str(tmp_path / "store"))
    return request.getfixturevalue("s3_store")
