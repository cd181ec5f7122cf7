#!/usr/bin/env python3
"""Starts an instance of a challenge for a player through berg-api, prints where to connect as soon as it runs, and ends it.

    BERG_API=http://localhost:8080 BERG_TOKEN=... play.py PLAYER CHALLENGE

The token is for the endpoint v1. Needs httpx.
"""
import os
import sys
import time

import httpx


def call(api, method, path, body=None):
    """Sends a request, and returns the answer. An error's message says what to do."""
    answer = api.request(method, path, json=body)
    if answer.is_error:
        sys.exit(f"{answer.status_code}: {answer.json().get('message')}")
    return answer.json()


def start(api, path, seconds):
    """Starts the instance. A second request for the same player and challenge returns the same one, and waits again."""
    deadline = time.monotonic() + seconds
    while True:
        instance = call(api, "PUT", path, {"waitSeconds": 30})
        if instance["state"] == "running":
            return instance
        print(instance["state"], instance.get("reason", ""), flush=True)
        if instance["state"] == "failed" or time.monotonic() > deadline:
            sys.exit(f"{instance['name']} does not run")


def main():
    player, challenge = sys.argv[1:]
    headers = {"Authorization": f"Bearer {os.environ['BERG_TOKEN']}"}
    # An answer waits until the instance runs: half a minute, as start asks for.
    with httpx.Client(base_url=os.environ["BERG_API"], headers=headers, timeout=60) as api:
        path = f"/v1/instances/{challenge}/{player}"
        instance = start(api, path, 600)
        for endpoint in instance["endpoints"]:
            print(endpoint["name"], endpoint.get("url") or f"{endpoint['hostname']}:{endpoint['port']}")
        print("it ends at", instance["until"])
        call(api, "DELETE", path)
        print("stopped")


if __name__ == "__main__":
    main()
