"""Configuration of the brokers of a local stack."""

import json
from pathlib import Path

from deploy.broker_config import nats_config, valkey_config, valkey_on_socket
from libs.contracts import flow
from libs.runtime.prefix_library import USERS


def test_each_nats_user_may_do_what_the_flow_allows() -> None:
    """One user per service, with its permissions and no other way in."""
    config = json.loads(nats_config("127.0.0.1:4321", Path("/run/h/jetstream"), {"gateway": "g", "tokenizer": "t"}))

    users = {user["user"]: user for user in config["authorization"]["users"]}
    assert set(users) == {"gateway", "tokenizer"}
    assert users["gateway"]["password"] == "g"
    assert users["gateway"]["permissions"]["publish"]["allow"] == list(flow.permissions("gateway").publish)
    assert "no_auth_user" not in config


def test_nats_listens_on_loopback_alone() -> None:
    """No monitoring port, no other interface."""
    config = json.loads(nats_config("127.0.0.1:4321", Path("/run/h/jetstream"), {}))

    assert config["listen"] == "127.0.0.1:4321"
    assert not {"http", "http_port", "https", "websocket", "leafnodes", "cluster"} & set(config)


def test_valkey_keeps_nothing_and_opens_no_port() -> None:
    """A private socket, no persistence, and no password in clear."""
    passwords = {user: f"{user}-password" for user in USERS}
    config = valkey_config(valkey_on_socket(Path("/run/h/valkey.sock")), Path("/run/h"), passwords)

    lines = config.splitlines()
    assert {"port 0", "unixsocketperm 700", 'save ""', "appendonly no"} <= set(lines)
    assert any(line.startswith("user default") and line.endswith("off") for line in lines)
    assert "-password" not in config
