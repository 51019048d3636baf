"""`python -m orchestrator.cli`: the command where no script was installed; `up` starts the controller this way."""

import sys

from orchestrator.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
