"""`python -m isentrope`"""

from __future__ import annotations

from isentrope.cli.main import main

if __name__ == "__main__":  # worker processes import this module too, and must not run it
    main()
