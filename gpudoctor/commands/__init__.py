"""What each command does, one file a command: options in, exit code out. Only the command line imports these."""
