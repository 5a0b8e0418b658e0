"""Stages: each reads run directories and writes one."""
