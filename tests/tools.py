"""Programs that tests need beside Python: installed when they are missing and we may."""

import os
import shutil
import subprocess


def need(program: str, package: str) -> str:
    """Where the program is. Two workers may ask at once, so each waits for the package manager's lock."""
    if shutil.which(program) is None and os.geteuid() == 0:
        install = ["apt-get", "install", "-y", "-qq", "-o", "DPkg::Lock::Timeout=240", package]
        if subprocess.run(install, check=False, capture_output=True, timeout=300).returncode:
            # The lists of a fresh machine may be empty or old.
            subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True, timeout=300)
            subprocess.run(install, check=False, capture_output=True, timeout=300)
    found = shutil.which(program)
    assert found, f"{program} is missing: apt-get install {package}"
    return found
