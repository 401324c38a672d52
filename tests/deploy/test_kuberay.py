"""deploy/kuberay.yaml, as far as that can be told without Kubernetes and KubeRay's schema."""

import re
from pathlib import Path

import pytest
import ray
import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "kuberay.yaml"
# Fields of ray.io/v1 RayCluster that the file uses; a misspelt one is ignored by Kubernetes.
SPEC = {
    "rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec",
    "workerGroupSpecs",
}  # fmt: skip
AUTOSCALER = {"upscalingMode", "idleTimeoutSeconds", "envFrom", "resources"}
HEAD = {"serviceType", "rayStartParams", "template"}
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


@pytest.fixture(scope="module")
def documents():
    return list(yaml.safe_load_all(FILE.read_text()))


@pytest.fixture(scope="module")
def spec(documents):
    assert (documents[0]["apiVersion"], documents[0]["kind"]) == ("ray.io/v1", "RayCluster")
    return documents[0]["spec"]


def _containers(documents):
    cluster = documents[0]["spec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"], documents[1]["spec"]]
    return [container for g in groups for container in g["template"]["spec"]["containers"]]


def test_only_known_fields(spec):
    assert set(spec) == SPEC
    assert set(spec["autoscalerOptions"]) <= AUTOSCALER
    assert set(spec["headGroupSpec"]) <= HEAD
    for group in spec["workerGroupSpecs"]:
        assert set(group) == GROUP


def test_the_version_is_the_one_in_the_image(spec):
    # KubeRay writes commands for the version that it is told.
    assert spec["rayVersion"] == ray.__version__


def test_a_group_has_gpus_and_both_scale(spec):
    cpu, gpu = spec["workerGroupSpecs"]
    assert spec["enableInTreeAutoscaling"] is True
    for group in (cpu, gpu):
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        assert group["minReplicas"] < group["maxReplicas"]
    assert gpu["minReplicas"] >= 1
    limits = gpu["template"]["spec"]["containers"][0]["resources"]
    assert limits["limits"]["nvidia.com/gpu"] == limits["requests"]["nvidia.com/gpu"] == "1"


def test_no_trials_on_the_head(spec):
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_every_part_has_the_credentials_from_the_secret_and_room_for_ray(documents, spec):
    for container in _containers(documents):
        assert container["envFrom"] == [{"secretRef": {"name": "raise-cluster"}}]
        assert {"/dev/shm", "/var/lib/raise"} == {
            mount["mountPath"] for mount in container["volumeMounts"]
        }
    assert spec["autoscalerOptions"]["envFrom"] == [{"secretRef": {"name": "raise-cluster"}}]


def test_what_waits_for_the_head_has_the_token(spec):
    # KubeRay copies env, not envFrom, to the init container that it adds to workers.
    reference = {"secretKeyRef": {"name": "raise-cluster", "key": "RAY_AUTH_TOKEN"}}
    for group in spec["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        assert container["env"] == [
            {"name": "RAY_AUTH_MODE", "value": "token"},
            {"name": "RAY_AUTH_TOKEN", "valueFrom": reference},
        ]


def test_the_image_has_what_kuberay_probes_with():
    assert re.search(r"apt-get install .*\bwget\b", (ROOT / "Dockerfile").read_text())


def test_nobody_is_root(documents):
    cluster = documents[0]["spec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"], documents[1]["spec"]]
    for group in groups:
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"] is True


def test_volumes_that_are_mounted_exist(documents):
    cluster = documents[0]["spec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"], documents[1]["spec"]]
    for group in groups:
        pod = group["template"]["spec"]
        names = {volume["name"] for volume in pod["volumes"]}
        assert {m["name"] for c in pod["containers"] for m in c["volumeMounts"]} == names
