"""`python -m tidelog` is the same as `tidelog`."""

from tidelog.cli import main

if __name__ == "__main__":
    main()
