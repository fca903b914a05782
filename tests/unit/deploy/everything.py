"""Values of the chart that leave nothing out, so that none waits for another to be of use."""

from typing import Any

EVERYTHING: dict[str, Any] = {
    "images": {"digests": {"pool": "sha256:" + "0" * 64}, "pullSecrets": ["pull"]},
    "models": {"small": {"name": "s", "aliases": ["t"], "path": "small", "maxModelLen": 128}},
    "settings": {"otlp_endpoint": "http://collector:4318"},
    "gateway": {
        "keysSecret": "keys",
        "traceKey": True,
        "service": {"grpcPort": 50051},
        "ingress": {"host": "h", "className": "c", "tlsSecret": "t"},
    },
    "cells": {"c": {"count": 2}, "other": {"model": "small"}},
    "cellDefaults": {
        "maxCount": 5,
        "gpu": {"deviceClass": "gpu"},
        "runtimeClassName": "r",
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k"}],
    },
    "networkPolicy": {"clients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    "monitoring": {"serviceMonitor": True, "prometheusRule": True, "dashboards": True},
}
