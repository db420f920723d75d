"""Real processes, real disks, real faults: what was acknowledged is still there, and one bad peer harms nobody else."""
