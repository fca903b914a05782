"""`python -m cli` is `headrace`."""

from cli.main import main

if __name__ == "__main__":
    main()
