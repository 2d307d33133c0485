"""How many files and connections a broker may have open.

A broker holds three to five files for each partition, and one for each connection. Shells and service managers start
processes with a soft limit of 1,024, for the sake of programs that use `select`, and leave the hard limit for those
that need more: a server raises the one to the other by itself. Nobody but root may go beyond that.
"""

from __future__ import annotations

from typing import Final

MOST_OPEN_FILES: Final = 1_048_576
"""Never asked for more, also where there is no hard limit: the kernel sizes tables by it, and some refuse more."""
OPEN_MAX: Final = 10_240
"""What macOS allows at most, whatever its hard limit says; asked for where more was refused."""
FEW_OPEN_FILES: Final = 4_096
"""Below this a broker says so at its start: it is reached with about a thousand partitions."""


def raise_open_files_limit() -> str:
    """Raise this process's soft limit to its hard one. Returns what to say of it; empty when nothing was to be done."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return ""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    limit, why = soft, "the hard limit, ulimit -Hn"
    if soft != resource.RLIM_INFINITY:
        for asked in (wanted, min(wanted, OPEN_MAX)):
            if asked <= soft:
                break
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (asked, hard))
            except (OSError, ValueError):  # some systems have a lower limit that they do not tell
                why = f"the system refuses {asked}"
            else:
                limit = asked
                break
    if limit != resource.RLIM_INFINITY and limit < FEW_OPEN_FILES:
        return f"warning: no more than {limit} files and connections may be open ({why}): too few for many partitions"
    return f"may open {limit} files and connections, not {soft}: {why.partition(',')[0]}" if limit != soft else ""
