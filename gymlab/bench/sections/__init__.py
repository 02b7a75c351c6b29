"""The parts of `gymlab bench ppo`, one file each: `measure(plan) -> Section`."""
