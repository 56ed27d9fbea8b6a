"""`python -m inferometer`: the same as the `inferometer` command."""

from inferometer.cli import main

if __name__ == "__main__":
    main()
