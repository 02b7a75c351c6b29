"""Made-up run directories."""

import json
import os
import time
from hashlib import sha256

from gymlab.engine.files import relative_link
from gymlab.engine.run import Run


def make_run(runs_dir, run_id, *, age_days=0.0, config=None, checkpoints=(), best=None, metrics=None, **record):
    """A run that ended so many days ago; its checkpoints are whole and hold as good as nothing."""
    run = Run(runs_dir / run_id)
    run.dir.mkdir(parents=True)
    moment = time.time() - age_days * 86400
    settings = {"env_id": "CartPole-v1", "algo_id": "ppo", "variant": "ppo", "seed": 0, "max_env_steps": 1000}
    (run.dir / "config.json").write_text(json.dumps(settings | (config or {})))
    fields = {"status": "finished", "reason": "finished", "experiment": "CartPole-v1:ppo", "seed": 0}
    fields |= {"started": moment, "ended": moment, "seconds": 1.5, "counters": {"env_steps": 1000}}
    (run.dir / "run.json").write_text(json.dumps(fields | record))
    if metrics is not None:
        (run.dir / "metrics.csv").write_text(metrics)
    for epoch in checkpoints:
        directory = run.dir / "checkpoints" / f"epoch={epoch:04d}.ckpt"
        directory.mkdir(parents=True)
        content = {"model.safetensors": b"", "state.json": b'{"parts": {}}'}
        for name, data in content.items():
            (directory / name).write_bytes(data)
        files = {name: {"size": len(data), "sha256": sha256(data).hexdigest()} for name, data in content.items()}
        (directory / "manifest.json").write_text(json.dumps({"files": files}))
        relative_link(run.dir / "checkpoints" / "last.ckpt", directory.name)
    if best is not None:
        relative_link(run.dir / "checkpoints" / "best.ckpt", f"epoch={best:04d}.ckpt")
    for path in (*run.dir.rglob("*"), run.dir):
        os.utime(path, (moment, moment), follow_symlinks=False)
    return run


def tree(directory):
    """Every path below a directory with its content: equal before and after means that nothing was changed."""
    return {
        str(path.relative_to(directory)): os.readlink(path)
        if path.is_symlink()
        else (path.read_bytes() if path.is_file() else None)
        for path in sorted(directory.rglob("*"))
    }
