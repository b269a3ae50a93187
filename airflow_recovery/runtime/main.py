"""The application file that spark-submit runs; everything it needs comes in the archive (``--py-files``)."""

import os
import sys

if __name__ == "__main__":
    # Python put this file's folder first on the path: `import watchdog` in a user's job must not find our module.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or os.curdir) != here]

    from airflow_recovery.runtime.driver import main

    sys.exit(main(sys.argv[1:]))
