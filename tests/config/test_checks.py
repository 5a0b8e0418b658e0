"""Checks that need no torch agree with what torch's modules register."""

from dph.config.checks import BUILT_IN
from dph.objective import ADVANTAGES, DIVERGENCES, POLICY_LOSSES


def test_built_in_names_are_those_of_the_registries():
    registries = {"divergence": DIVERGENCES, "advantage": ADVANTAGES, "policy loss": POLICY_LOSSES}
    for kind, registry in registries.items():
        own = [name for name in registry if registry[name].__module__.startswith("dph.")]
        assert sorted(BUILT_IN[kind]) == sorted(own)
