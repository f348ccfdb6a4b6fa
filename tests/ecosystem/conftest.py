"""Files whose package is not installed are not collected, and scripts are read by the test of theirs."""

from tests.ecosystem.program import PACKAGES, is_there

collect_ignore = [f"of_{package}.py" for package in PACKAGES if not is_there(package)]
collect_ignore_glob = ["scripts/*"]
