"""`python -m repro` is the `repro` command."""

from repro.cli.main import main

if __name__ == "__main__":
    main()
