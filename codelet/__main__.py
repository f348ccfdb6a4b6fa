"""`python -m codelet`: the console script."""

from ipu_backend.cli import main

if __name__ == "__main__":
    main()
