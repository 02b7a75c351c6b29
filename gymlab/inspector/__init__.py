"""The inspector: one page, served on this machine, that shows runs, their learning, episodes, agents and dreams."""
