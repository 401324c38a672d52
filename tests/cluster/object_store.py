"""An S3 server in memory (moto) that can be told to answer 500: ``object_store.py HOST PORT FLAG``.

While the file FLAG exists every request is answered with 500.
"""

import sys
from pathlib import Path

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def main(host: str, port: int, flag: Path) -> None:
    backend = DomainDispatcherApplication(create_backend_app)

    def application(environ, start_response):
        if flag.exists():
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("500 Internal Server Error", [("Content-Length", "0")])
            return []
        return backend(environ, start_response)

    run_simple(host, port, application, threaded=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
