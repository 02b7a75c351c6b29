"""MuJoCo reads the choice of a GL backend once, when the first test module that needs it is imported."""

from importlib.util import find_spec

from gymlab.envs.gl import prepare_gl

if find_spec("mujoco") is not None:
    prepare_gl(drawing=False)
