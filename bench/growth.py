"""How a step's time grows: see isentrope/bench/growth.py, or `python bench/growth.py --help`."""

from isentrope.bench.growth import main

if __name__ == "__main__":
    main()
