#!/usr/bin/python
"""Ansible module: give a node what it needs to be let in by its controller.

Comes in: a join token that nobody must see, the certificate of the controller's authority. Goes out: two files, or a
failure that says what is missing. Called by: the role `agent`, in one call, since each costs a start of Python.

A node that has been let in needs no join token. One that is given all the same is written: its agent takes it when its
own token, or the key that goes with it, is worth nothing any more.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: gangline_enrol
short_description: Give a node what it needs to be let in
options:
  node: {description: The node's name., type: str, required: true}
  state: {description: The agent's state, with its own token once it has been let in., type: str, required: true}
  join_path: {description: Where the join token is kept., type: path, required: true}
  join_token: {description: The join token's line; empty if there is none to give., type: str, default: ""}
  ca_path: {description: Where the certificate is kept; empty without TLS., type: str, default: ""}
  ca: {description: The certificate of the controller's authority in PEM., type: str, default: ""}
author: [Gangline]
"""

EXAMPLES = r"""
- name: Let the node in
  gangline_enrol:
    node: h1
    state: /var/lib/gangline-agent
    join_path: /etc/gangline/join
    join_token: "{{ token }}"
"""

RETURN = r"""
changes: {description: What was written, or would be, in words, returned: always, type: list, elements: str}
"""

import os  # noqa: E402 - Ansible wants its documentation first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402

HINT = (
    "{node} has neither a token of its own nor a join token, so its agent can't be let in: run `gangline up`, or give "
    'a join token by `-e @FILE`, a file of mode 0600 with {{"gangline_join_tokens": {{"{node}": "TOKEN"}}}}'
)


def keep(path, text, mode, dry):
    """Write a file of root's if it is not the same already; whether it was not."""
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text and os.stat(path).st_mode & 0o7777 == mode:
                return False
    except FileNotFoundError:
        pass
    if not dry:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        draft = f"{path}.new"
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(handle, mode)
            file.write(text)
            file.flush()
            os.fsync(handle)
        os.replace(draft, path)
    return True


def enrol(parameters, dry):
    """What was written, in words. KeyError if the node can't be let in."""
    changes, ca = [], parameters["ca_path"]
    if ca and parameters["ca"] and keep(ca, parameters["ca"], 0o644, dry):
        changes.append(f"file {ca}: the certificate of the controller's authority")
    enrolled = os.path.exists(os.path.join(parameters["state"], "token"))
    if parameters["join_token"]:
        if keep(parameters["join_path"], parameters["join_token"] + "\n", 0o600, dry):
            changes.append(f"file {parameters['join_path']}: a join token")
    elif not enrolled and not dry and not os.path.exists(parameters["join_path"]):
        raise KeyError(parameters["node"])
    return changes


def main():
    """One call of the module."""
    spec = {
        "node": {"type": "str", "required": True},
        "state": {"type": "str", "required": True},
        "join_path": {"type": "path", "required": True},
        "join_token": {"type": "str", "default": "", "no_log": True},
        "ca_path": {"type": "str", "default": ""},
        "ca": {"type": "str", "default": ""},
    }
    module = AnsibleModule(spec, supports_check_mode=True)
    try:
        changes = enrol(module.params, module.check_mode)
    except KeyError:
        module.fail_json(msg=HINT.format(node=module.params["node"]))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}")
    module.exit_json(changed=bool(changes), changes=changes)


if __name__ == "__main__":
    main()
