"""Files whose package is not installed are not collected."""

from tests.ecosystem.program import PACKAGES, is_there

collect_ignore = [f"of_{package}.py" for package in PACKAGES if not is_there(package)]
