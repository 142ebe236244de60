"""Addresses of servers: which are on this machine, and those that `task.where` lists."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

PLACES = ("auto", "local", "processes")


def is_local(host: str) -> bool:
    """Whether a host's name can only mean this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_remote(where: str) -> bool:
    """Whether task.where names servers."""
    return "://" in where


def addresses(where: str) -> tuple[str, ...]:
    """The servers' addresses in task.where, which stand between commas."""
    return tuple(dict.fromkeys(part.strip().rstrip("/") for part in where.split(",") if part.strip()))


def where_problem(where: str, workers: int) -> str | None:
    """What is wrong with task.where, in a sentence."""
    if where == "local" and workers:
        return (
            f'task.workers = {workers} with task.where = "local": tasks are played in worker processes or in this one, '
            "not in both; leave one of the settings out"
        )
    if where in PLACES:
        return None
    if workers and is_remote(where):
        return f"task.workers = {workers} with task.where = {where!r}: a task server has its own workers; leave it out"
    if not is_remote(where) or not addresses(where):
        return f"task.where = {where!r}: expected {', '.join(PLACES)}, or addresses such as http://127.0.0.1:8100"
    for address in addresses(where):
        try:
            parts = urlsplit(address)
            fine = bool(parts.hostname) and parts.scheme in ("http", "https") and parts.port != 0
        except ValueError:  # a port that is no number
            parts, fine = urlsplit(""), False
        if not fine or not address.isascii() or not address.isprintable() or " " in address:
            return f"task.where = {where!r}: {address!r} is not an address such as http://127.0.0.1:8100"
        if "@" in parts.netloc or parts.query or parts.fragment:
            return (
                "task.where holds a user name, a password or a query, which would be written into config.toml; give "
                "the plain address of the server, and its key in the environment variable that task.key_env names"
            )
    return None
