"""TD-MPC (Hansen et al. 2022), the first version: TD-MPC2's hooks with other networks, settings and replay.

z free, ELU         scalars by squares, values by 2 networks, the smaller of which counts
consistency         towards the slow encoder, which follows every second update
replay              by priority: how far the values along a sequence were off
plans               of 1 to 5 steps, as bold as the schedules say; each round keeps a share of the last
"""

from __future__ import annotations

from typing import ClassVar

from gymlab.components.tdmpc_config import TDMPCConfig
from gymlab.config.schema import Config
from gymlab.engine.workflow import register_workflow
from gymlab.workflows.tdmpc2 import TDMPC2


@register_workflow("tdmpc")
class TDMPC(TDMPC2):
    """What differs is in the config, and where the hooks ask for it."""

    Config: ClassVar[type[Config]] = TDMPCConfig
