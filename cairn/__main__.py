"""`python -m cairn` is the command `cairn`."""

from cairn.cli import main

if __name__ == "__main__":
    main()
