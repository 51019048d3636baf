#!/usr/bin/python
"""Ansible module: make a role's items true on a host, one kind at a time, and prove it.

Comes in: the items of one role. Goes out: what differs (`look`), or what was changed (`heal`), with a failure in words
where a difference stays. Called by: the role `items`. It looks with the eyes of `gangline drift`: check_host.py.
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
    description: Look only, heal one kind, prove that nothing is left, or undo items that are wanted no more.
    type: str
    choices: [look, heal, prove, let_go]
    default: look
  batch: {description: The items to heal, as C(look) has returned them., type: dict, default: {}}
author: [Gangline]
"""

EXAMPLES = r"""
- name: Heal packages
  gangline_items:
    role: base
    items: "{{ gangline_items.base }}"
    node: "{{ inventory_hostname }}"
    do: heal
    batch: {kind: package, names: [chrony]}
"""

RETURN = r"""
drift: {description: What differs (after healing with C(prove)), returned: always, type: list, elements: dict}
changes: {description: What was changed, or would be, in words, returned: always, type: list, elements: str}
batches: {description: Items that differ, in their order, neighbours of one kind together, returned: always, type: list}
notes: {description: What can't be done on this host and is no fault, returned: always, type: list, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402 - Ansible wants its documentation first
from ansible.module_utils.check_host import for_node, look  # noqa: E402
from ansible.module_utils.gangline_heal import HEALERS, Failed, let_go, restart_late_units  # noqa: E402

RESTARTED = {("unit", "runs")}


def payload(module, items):
    """What check_host takes."""
    parameters = module.params
    roles = [{"role": parameters["role"], "items": items}]
    return {"node": parameters["node"], "address": parameters["address"], "roles": roles}


def own_drift(seen):
    """Without what concerns the host as a whole: no role heals a pending reboot."""
    return [each for each in seen["drift"] if each["kind"] != "host"]


def in_words(drift):
    """`package chrony: held no -> yes`."""
    return [
        "{kind} {name}: {value} {found} -> {wanted}".format(**{**each, "found": each["found"] or "absent"})
        for each in drift
    ]


def batches_of(items, drift):
    """Items that differ, in the order in which they are made, neighbours of one kind together."""
    wrong = {(each["kind"], each["name"]) for each in drift}
    batches = []
    for item in items:
        if (item["kind"], item["name"]) not in wrong:
            continue
        if not batches or batches[-1]["kind"] != item["kind"]:
            batches.append({"kind": item["kind"], "names": []})
        batches[-1]["names"].append(item["name"])
    return batches


def heal(module, items, drift):
    """Heal the items of one batch."""
    kind, names = module.params["batch"]["kind"], module.params["batch"]["names"]
    mine = [each for each in drift if each["kind"] == kind and each["name"] in names]
    mine = [each for each in mine if (each["kind"], each["value"]) not in RESTARTED]
    if mine and not module.check_mode:
        wanted = [item for item in items if item["kind"] == kind and item["name"] in names]
        HEALERS[kind]([for_node(item, module.params) for item in wanted], mine)
    return mine


def prove(module, items, drift):
    """Restart what runs with older files; what differs after that is a failure."""
    late = [each for each in drift if (each["kind"], each["value"]) in RESTARTED]
    if module.check_mode:
        return late, []
    restart_late_units(late)
    return late, own_drift(look(payload(module, items)))


def main():
    """One call of the module."""
    spec = {
        "role": {"type": "str", "required": True},
        "items": {"type": "list", "elements": "dict", "required": True},
        "node": {"type": "str", "required": True},
        "address": {"type": "str", "default": ""},
        "do": {"type": "str", "choices": ["look", "heal", "prove", "let_go"], "default": "look"},
        "batch": {"type": "dict", "default": {}},
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
        return {"changed": bool(changes), "changes": changes, "drift": [], "batches": [], "notes": []}
    seen = look(payload(module, items))
    drift = own_drift(seen)
    batches = batches_of(items, drift)
    result = {"drift": drift, "batches": batches, "notes": seen["notes"], "changes": []}
    done = []
    if do == "heal":
        done = heal(module, items, drift)
    elif do == "prove":
        done, left = prove(module, items, drift)
        if left:
            raise Failed("still not as wanted: " + "; ".join(in_words(left)))
    return {**result, "changed": bool(done), "changes": in_words(done)}


if __name__ == "__main__":
    main()
