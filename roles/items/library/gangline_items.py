#!/usr/bin/python
"""Ansible module: make a role's items true on a host, and prove it.

Comes in: the items of one role. Goes out: what differs (`look`), or what was changed (`heal`; `begin` where no archive
has to be brought first), with a failure in words where a difference stays. Called by: the role `items`. It looks with
the eyes of `gangline drift`: check_host.py.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: gangline_items
short_description: Make the items of a Gangline role true on a host
description:
  - Looks at the host with the same code as C(gangline drift), and heals what differs.
  - Check mode tells what would change, and changes nothing.
options:
  role: {description: The role that the items belong to., type: str, required: true}
  items: {description: The role's items, as C(gangline render) writes them., type: list, elements: dict, required: true}
  node: {description: The node's name., type: str, required: true}
  address: {description: The node's own address., type: str, default: ""}
  do:
    description: >-
      Look only, heal what differs and prove that nothing is left, the same unless an archive has to be brought first
      (then look only), or undo items that are wanted no more.
    type: str
    choices: [look, heal, begin, let_go]
    default: look
author: [Gangline]
"""

EXAMPLES = r"""
- name: Heal packages
  gangline_items:
    role: base
    items: "{{ gangline_items.base }}"
    node: "{{ inventory_hostname }}"
    do: heal
"""

RETURN = r"""
drift: {description: What differed, returned: always, type: list, elements: dict}
archives: {description: Archives that differ and have to be brought before healing, returned: always, type: list}
changes: {description: What was changed, or would be, in words, returned: always, type: list, elements: str}
notes: {description: What can't be done on this host and is no fault, returned: always, type: list, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402 - Ansible wants its documentation first
from ansible.module_utils.check_host import for_node, look  # noqa: E402
from ansible.module_utils.gangline_heal import Failed, heal_all, in_words, let_go  # noqa: E402


def payload(module, items):
    """What check_host takes."""
    parameters = module.params
    roles = [{"role": parameters["role"], "items": items}]
    return {"node": parameters["node"], "address": parameters["address"], "roles": roles}


def heal(module, items, drift):
    """Heal all, look again, and fail if anything still differs. An archive that differs was brought before."""
    if module.check_mode:
        return drift
    wanted = [for_node(item, module.params) for item in items]
    return heal_all(wanted, drift, lambda: look(payload(module, items))["drift"])


def main():
    """One call of the module."""
    spec = {
        "role": {"type": "str", "required": True},
        "items": {"type": "list", "elements": "dict", "required": True},
        "node": {"type": "str", "required": True},
        "address": {"type": "str", "default": ""},
        "do": {"type": "str", "choices": ["look", "heal", "begin", "let_go"], "default": "look"},
    }
    module = AnsibleModule(spec, supports_check_mode=True)
    try:
        module.exit_json(**run(module))
    except Failed as failed:
        module.fail_json(msg=str(failed))


def run(module):
    """The module's result."""
    items, do = module.params["items"], module.params["do"]
    if do == "let_go":
        changes = let_go(items, module.check_mode)
        return {"changed": bool(changes), "changes": changes, "drift": [], "archives": [], "notes": []}
    seen = look(payload(module, items))
    drift = seen["drift"]
    for note in seen["notes"]:
        module.warn(f"{module.params['node']}: {note}")
    archives = sorted({each["name"] for each in drift if each["kind"] == "archive"})
    result = {"drift": drift, "archives": archives, "notes": seen["notes"]}
    if do == "look" or (do == "begin" and archives):
        return {**result, "changed": False, "changes": []}
    healed = heal(module, items, drift)
    return {**result, "changed": bool(healed), "changes": [in_words(each) for each in healed]}


if __name__ == "__main__":
    main()
