"""The command line: one file per noun, thin calls on the client, tables for people and --json for programs.

Exit codes: 0 success; 1 the command failed, or found damage; 2 the command line or a configuration is wrong;
3 no broker could be reached; 130 interrupted; 141 whoever read the output went away.
"""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from tidelog.cli.running import run  # noqa: PLC0415 - importing this package must stay free

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
