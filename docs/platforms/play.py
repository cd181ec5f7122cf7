#!/usr/bin/env python3
"""Starts an instance of a challenge for a player, prints where to connect, extends it, and ends it.

    play.py PLAYER CHALLENGE

It uses the account of its pod, or the kubeconfig outside of a cluster.
"""
import sys
import uuid

from kubernetes import client, config, watch

NAMESPACE = "berg"
KIND = {"group": "berg.norelect.ch", "version": "v1", "namespace": NAMESPACE, "plural": "challengeinstances"}


def start(api, player, challenge):
    """Creates the instance, unless it already exists."""
    name = f"{player}-{challenge}"
    body = {
        "apiVersion": "berg.norelect.ch/v1",
        "kind": "ChallengeInstance",
        "metadata": {"name": name},
        "spec": {
            "challengeRef": {"name": challenge},
            "ownerId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"https://ctf.example.com/players/{player}")),
            "flag": f"flag{{{uuid.uuid4().hex}}}",
            "timeout": "1h",
        },
    }
    try:
        api.create_namespaced_custom_object(body=body, **KIND)
    except client.ApiException as e:
        if e.status != 409:
            raise
    return name


def changes(api, name, seconds):
    """Yields the instance now and after each change, until it is gone: then None."""
    for event in watch.Watch().stream(
        api.list_namespaced_custom_object, field_selector=f"metadata.name={name}", timeout_seconds=seconds, **KIND
    ):
        if event["type"] == "DELETED":
            yield None
            return
        yield event["object"]


# What a player reads; docs/berg/start.md has all causes.
WORDS = {
    "NotReadyYet": "It is starting.",
    "OwnerBusy": "Your earlier challenge is still being ended.",
    "Queued": "Many are playing: you are in the queue.",
    "Frozen": "The event is paused.",
    "NoCapacity": "All machines are busy: it starts when one is free.",
    "AddressPending": "Its address is being set up.",
}
BROKEN = "This challenge does not start. The organisers can see why."


def words(instance):
    """Why the instance does not run, in a sentence for players; empty when it does."""
    cause = instance["status"].get("cause", "")
    return WORDS.get(cause, BROKEN) if cause else ""


def problem(instance):
    """The first condition that says what is wrong, as text."""
    for c in instance["status"].get("conditions", []):
        if c["status"] == "False" and c["type"] not in ("NamespaceDeleted", "Healthy"):
            return f"{c['reason']}: {c['message']}"
    return ""


def main():
    player, challenge = sys.argv[1:]
    try:
        config.load_incluster_config()
    except config.ConfigException:
        config.load_kube_config()
    api = client.CustomObjectsApi()

    name = start(api, player, challenge)
    for instance in changes(api, name, 600):
        if instance is None:
            sys.exit(f"{name} was deleted")
        phase = instance["status"]["phase"]
        print(phase, words(instance), problem(instance), flush=True)
        if phase == "Running":
            break
    else:
        sys.exit(f"{name} did not run within ten minutes")

    for service in instance["status"].get("services", []):
        print(service["name"], service["url"])

    api.patch_namespaced_custom_object(name=name, body={"spec": {"timeout": "2h"}}, **KIND)
    for instance in changes(api, name, 60):
        if instance is None:
            sys.exit(f"{name} was deleted")
        if instance["status"]["observedGeneration"] == instance["metadata"]["generation"]:
            print("it ends at", instance["status"]["expiresAt"])
            break

    api.patch_namespaced_custom_object(name=name, body={"spec": {"terminationReason": "UserRequest"}}, **KIND)
    for instance in changes(api, name, 300):
        if instance is None:
            print("gone")
            return
    sys.exit(f"{name} is still there")


if __name__ == "__main__":
    main()
