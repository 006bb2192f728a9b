"""The command line's commands, one module each: ``configure`` adds its parser, ``run`` does the work."""
