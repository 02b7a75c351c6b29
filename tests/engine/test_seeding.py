"""The seed tree: equal paths give equal streams, all others differ."""

import numpy as np

from gymlab.engine.seeding import SeedTree


def test_same_path_same_seed_on_every_machine():
    assert SeedTree(0).child("train", 3, 7).integer() == SeedTree(0).child("train").child(3, 7).integer()
    assert SeedTree(42).child("train", 0, 0).integer() == 8304017811608043930


def test_no_two_episodes_share_a_seed():
    seeds = {
        SeedTree(0).child(purpose, env, episode).integer()
        for purpose in ("train", "val", "test")
        for env in range(16)
        for episode in range(50)
    }
    assert len(seeds) == 3 * 16 * 50


def test_seed_zero_differs_from_seed_one_and_generators_restart():
    assert SeedTree(0).child("x").integer() != SeedTree(1).child("x").integer()
    np.testing.assert_array_equal(
        SeedTree(0).child("x").generator().random(3), SeedTree(0).child("x").generator().random(3)
    )
