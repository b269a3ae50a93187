"""Build a small versitygw from main.go, without the packages that an S3 server for tests never uses.

    python scripts/versitygw/small_build.py PROGRAM      builds it with `go` into the file PROGRAM

The handlers of S3's requests, and the storage in a folder, are those of the real program. The build copies four
modules, and replaces these parts of them:

- The clients of LDAP, Vault, Kafka, NATS, RabbitMQ and StatsD. `left_out/` has functions that fail in their place.
- Brotli and Zstandard, which no S3 client requests. `left_out/` has packages that fail in their place.
- The client of S3 in Amazon's SDK. The server needs only the structures of its requests and answers.

With an empty cache this build needs 50 seconds of a processor, and `go install` of the real program needs 150.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEFT_OUT = HERE / "left_out"
SERVER = "github.com/versity/versitygw"
S3_CLIENT = "github.com/aws/aws-sdk-go-v2/service/s3"
REPLACED = {
    SERVER: (
        "auth/iam_ldap.go",
        "auth/iam_s3_object.go",
        "auth/iam_standalone.go",
        "auth/iam_vault.go",
        "metrics/dogstats.go",
        "metrics/statsd.go",
        "s3event/kafka.go",
        "s3event/nats.go",
        "s3event/rabbitmq.go",
    ),
    S3_CLIENT: ("*.go",),
    "github.com/andybalholm/brotli": ("*.go",),
    "github.com/klauspost/compress": ("zstd/*.go",),
}
"""The modules that are copied, and for each the files that are left out of the copy."""

_STRUCTURE = re.compile(r"^type \w+(?:Input|Output) struct {$.*?^}$", re.MULTILINE | re.DOTALL)
_PACKAGES = {
    "io": "io",
    "middleware": "github.com/aws/smithy-go/middleware",
    "smithydocument": "github.com/aws/smithy-go/document",
    "time": "time",
    "types": f"{S3_CLIENT}/types",
}


def build(program: Path) -> None:
    """Build the server into the file ``program``.

    Raises `subprocess.CalledProcessError` if the build fails. `go` prints the reason.
    """
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
        source = Path(scratch)
        for name in ("go.mod", "go.sum", "main.go"):
            shutil.copy(HERE / name, source)
        _go(source, "mod", "download", *REPLACED)
        for number, module in enumerate(REPLACED):
            original, folder = Path(_go(source, "list", "-m", "-f", "{{.Dir}}", module)), source / f"module-{number}"
            _copy(original, folder, REPLACED[module])
            _copy(LEFT_OUT / module, folder)
            if module == S3_CLIENT:
                (folder / "structures.go").write_text(_structures(original))
            _go(source, "mod", "edit", f"-replace={module}=./{folder.name}")
        # Without debug information the compiler and the linker need a quarter less time.
        _go(source, "build", "-gcflags=all=-dwarf=false", "-ldflags=-s -w", "-o", str(program), ".")


def _copy(original: Path, folder: Path, without: tuple[str, ...] = ()) -> None:
    """Copy the files that a build reads. Modules of `go` are read-only, and their copies must not be."""
    left_out = {file for pattern in without for file in original.glob(pattern)}
    for file in original.rglob("*"):
        if file.is_file() and file not in left_out and not file.name.endswith("_test.go"):
            copy = folder / file.relative_to(original)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _go(folder: Path, *arguments: str) -> str:
    flags = f"{os.environ.get('GOFLAGS', '')} -mod=readonly".strip()
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": flags, "GOWORK": "off"}
    done = subprocess.run(
        ["go", *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def _structures(folder: Path) -> str:
    """Return the structures of S3's requests and answers, without the client that sends them."""
    found = [each for file in sorted(folder.glob("api_op_*.go")) for each in _STRUCTURE.findall(file.read_text())]
    body = "\n\n".join(
        [
            "type noSmithyDocumentSerde = smithydocument.NoSerde",
            "type SelectObjectContentEventStream struct{}",
            *found,
        ]
    )
    used = [f'{name} "{path}"' for name, path in _PACKAGES.items() if re.search(rf"\b{name}\.", body)]
    return "package s3\n\nimport (\n" + "\n".join(used) + f"\n)\n\n{body}\n"


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
