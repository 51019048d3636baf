"""Hosts of `metal` sites: reached over SSH, compared with what they must have, configured by Ansible roles.

Comes in: a spec and its `Desired`s. Goes out: a folder that `ansible-playbook` runs on, sights of hosts, hosts that are
as wanted. Called by: controller and cli, for `render`, `plan`, `apply`, `drift`.
"""
