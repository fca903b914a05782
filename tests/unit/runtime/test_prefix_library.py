"""The access rules of the prefix index's server."""

from libs.runtime.prefix_library import acl_lines

PASSWORDS = {"tokenizer": "t-secret", "scheduler": "s-secret", "supervisor": "v-secret", "gateway": "g-secret"}


def test_rules_hold_no_password_and_switch_the_default_user_off() -> None:
    """Only digests go into the file; nobody comes in without a name."""
    lines = acl_lines(PASSWORDS)

    assert lines[0].split()[:2] == ["user", "default"] and lines[0].endswith(" off")
    assert not any(password in line for line in lines for password in PASSWORDS.values())
    assert {line.split()[1] for line in lines[1:]} == set(PASSWORDS)
