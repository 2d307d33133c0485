"""Brokers as containers of a compose project, struck from the host through Docker's interface."""

from odradek_chaos.worlds.compose.project import project_name
from odradek_chaos.worlds.compose.world import ComposeWorld

__all__ = ["ComposeWorld", "project_name"]
