"""The packed Helm chart: its objects for several values, and the values that it refuses."""

import base64
import json
import os
import pathlib
import re
import subprocess

import jsonschema
import kubernetes_validate
import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("TOUCHLINE_BIN", ROOT / "target/debug/touchline"))
HELM = ROOT / "target/bin/helm"
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
# A helm that is built from source assumes an old version of Kubernetes.
CLUSTER = ["--kube-version", "1.31.0"]
KUBERNETES = ["1.25", "1.31", "1.34"]

NATS = {"cluster": {"engine": "nats", "nats_url": ["nats://nats:4222"], "stream_replicas": 3}}
NEWS = {"client": {"allowed_origins": ["https://example.com"]},
        "channel": {"namespaces": [{"name": "news", "history_size": 100, "history_ttl": "1h", "force_recovery": True}]}}
HOSTS = {"enabled": True, "hosts": [{"host": "live.example.com", "paths": ["/"]}], "tls": [{"secretName": "live", "hosts": ["live.example.com"]}]}
VALUES = {
    "default": {},
    "one": {"config": {**NEWS, "http_api": {"body_size_limit": 104857600}, "shutdown": {"timeout": "1m30s"}}, "secrets": {"tokenHmacSecretKey": "t" * 40, "apiKey": "a" * 40}},
    "cluster": {"replicaCount": 3, "config": {**NEWS, **NATS}, "secrets": {"tokenHmacSecretKey": "t" * 40, "http_api.key": "a" * 40, "cluster.nats_password": "n" * 40,
                "store.primary.url": "postgres://touchline:password@postgres/touchline"},
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}]},
    "ingress": {"ingress": {**HOSTS, "ingressClassName": "nginx"}, "ingressInternal": HOSTS},
    "monitor": {"metrics": {"serviceMonitor": {"enabled": True, "additionalLabels": {"release": "prometheus"}, "interval": "15s"}}},
    "autoscaling": {"config": NATS, "autoscaling": {"enabled": True, "maxReplicas": 5, "memory": {"enabled": True}}},
    "existing secret": {"existingSecret": "mine"},
    "secret variables": {"envSecret": [{"name": "TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY", "secretKeyRef": {"name": "mine", "key": "token"}}]},
    "persistence": {"persistence": {"enabled": True, "storageClass": "fast"}, "config": {"channel": {"namespaces": [{"name": "chat", "history_size": 10, "history_ttl": "1h", "durable": True}]}}},
    "three services": {"service": {"useSeparateInternalService": True, "useSeparateGrpcService": True, "type": "NodePort", "nodePort": 30080}, "config": {"grpc_api": {"enabled": True}}},
    "everything else": {
        "global": {"imageRegistry": "registry.example.com", "imagePullSecrets": ["mine"]}, "imagePullSecrets": [{"name": "other"}], "nameOverride": "live", "namespaceOverride": "events",
        "priorityClassName": "high", "annotations": {"a": "b"}, "env": {"TOUCHLINE_LOG_FORMAT": "json", "TOUCHLINE_NODE_SHARDS": 2}, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "nodeSelector": {"kubernetes.io/arch": "amd64"}, "tolerations": [{"key": "live", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}}]}},
        "dnsPolicy": "ClusterFirst", "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}, "volumes": [{"name": "more", "emptyDir": {}}], "volumeMounts": [{"name": "more", "mountPath": "/more"}],
        "initContainers": [{"name": "wait", "image": "busybox", "command": ["true"]}], "terminationGracePeriodSeconds": 120, "deploymentStrategy": {"type": "Recreate"},
        "podDisruptionBudget": {"minAvailable": "50%"}, "serviceAccount": {"create": False, "name": "mine"}, "tests": {"enabled": False}, "metrics": {"enabled": False},
    },
}


@pytest.fixture(scope="session")
def chart(tmp_path_factory) -> pathlib.Path:
    """The packed chart. The packing installs helm if the machine does not have it."""
    out = tmp_path_factory.mktemp("chart")
    subprocess.run([ROOT / "packaging/helm/package", out], check=True)
    return out / f"touchline-{VERSION}.tgz"


def helm(chart: pathlib.Path, values: dict, *command: str) -> subprocess.CompletedProcess:
    file = chart.parent / "values.json"
    file.write_text(json.dumps(values))
    return subprocess.run([HELM, *command, chart, "--values", file, *CLUSTER], capture_output=True, text=True)


def render(chart: pathlib.Path, values: dict) -> dict[tuple[str, str], dict]:
    """The objects, by kind and name."""
    ended = helm(chart, values, "template", "live", "--namespace", "events")
    assert ended.returncode == 0, ended.stderr
    objects = [found for found in yaml.safe_load_all(ended.stdout) if found]
    named = {(found["kind"], found["metadata"]["name"]): found for found in objects}
    assert len(named) == len(objects)
    return named


def refusal(chart: pathlib.Path, values: dict) -> str:
    ended = helm(chart, values, "template", "live")
    assert ended.returncode != 0, f"{values} is rendered"
    return ended.stderr


@pytest.fixture(params=VALUES)
def rendered(request, chart):
    objects = render(chart, VALUES[request.param])
    objects["values"] = VALUES[request.param]
    return objects


def kinds(objects: dict, kind: str) -> list[dict]:
    return [found for key, found in objects.items() if key[0] == kind]


def pod(objects: dict) -> dict:
    [deployment] = kinds(objects, "Deployment")
    return deployment["spec"]["template"]["spec"]


def container(objects: dict) -> dict:
    [found] = pod(objects)["containers"]
    return found


def configuration(objects: dict) -> dict:
    [found] = kinds(objects, "ConfigMap")
    return json.loads(found["data"]["touchline.json"])


@pytest.mark.parametrize("name", VALUES)
def test_lint_finds_nothing(chart, name):
    ended = helm(chart, VALUES[name], "lint", "--strict")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "[WARNING]" not in ended.stdout and "[ERROR]" not in ended.stdout


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_every_object(rendered, version):
    del rendered["values"]
    # Kubernetes does not have the schema of a ServiceMonitor, which belongs to its operator.
    known = [found for found in rendered.values() if found["kind"] != "ServiceMonitor"]
    assert len(known) >= 4
    for found in known:
        kubernetes_validate.validate(found, version, strict=True)


def test_the_probes_ask_the_internal_port(rendered):
    found = container(rendered)
    ports = {port["name"]: port["containerPort"] for port in found["ports"]}
    config = configuration(rendered)
    assert ports["clients"] == config["http_server"]["port"] == 8000
    assert ports["internal"] == config["http_server"]["internal_port"] == 9000
    assert config["health"]["enabled"] is True
    asked = {name: found[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: asked[name]["path"] for name in asked} == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
    assert all(get["port"] == "internal" and get["scheme"] == "HTTP" for get in asked.values())


def test_every_port_of_a_service_is_one_of_the_container(rendered):
    ports = {port["name"] for port in container(rendered)["ports"]}
    served = [port["targetPort"] for service in kinds(rendered, "Service") for port in service["spec"]["ports"]]
    assert sorted(served) == sorted(ports), "each port is served once"


def test_a_service_finds_the_pods(rendered):
    [deployment] = kinds(rendered, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = [service["spec"]["selector"] for service in kinds(rendered, "Service")]
    selectors += [budget["spec"]["selector"]["matchLabels"] for budget in kinds(rendered, "PodDisruptionBudget")]
    selectors.append(deployment["spec"]["selector"]["matchLabels"])
    assert all(selector and selector.items() <= labels.items() for selector in selectors)


def test_the_pod_has_time_to_drain(rendered):
    timeout = rendered["values"].get("config", {}).get("shutdown", {}).get("timeout", "30s")
    seconds = {"30s": 30, "1m30s": 90}[timeout]
    assert pod(rendered)["terminationGracePeriodSeconds"] >= seconds + 10


def test_the_pod_has_no_rights(rendered):
    found, secured = pod(rendered), container(rendered)["securityContext"]
    assert found["securityContext"]["runAsNonRoot"] is True and found["securityContext"]["runAsUser"] == 65532
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert secured["readOnlyRootFilesystem"] is True and secured["allowPrivilegeEscalation"] is False
    assert secured["capabilities"] == {"drop": ["ALL"]}
    assert found["automountServiceAccountToken"] is False and found["enableServiceLinks"] is False


def test_no_secret_is_outside_of_a_secret(rendered):
    secrets = [value for value in rendered["values"].get("secrets", {}).values()]
    for found in kinds(rendered, "Secret"):
        secrets += [base64.b64decode(value).decode() for value in found["data"].values()]
    others = json.dumps([found for key, found in rendered.items() if key != "values" and key[0] != "Secret"])
    assert not [secret for secret in secrets if secret in others]


def test_the_server_takes_the_configuration(rendered, tmp_path):
    """The files of the Secret, as they are mounted."""
    if not BINARY.is_file():
        pytest.fail(f"{BINARY} is missing: cargo build, or name another by TOUCHLINE_BIN", pytrace=False)
    file, credentials = tmp_path / "touchline.json", tmp_path / "secrets"
    file.write_text(json.dumps(configuration(rendered)))
    credentials.mkdir()
    environment = {"PATH": os.environ["PATH"]}
    for found in kinds(rendered, "Secret"):
        for name, value in found["data"].items():
            (credentials / name).write_bytes(base64.b64decode(value))
            (credentials / name).chmod(0o440)
    secrets = {"TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY": "s" * 40, "TOUCHLINE_HTTP_API_KEY": "k" * 40}
    for variable in container(rendered)["env"]:
        if variable["name"] == "CREDENTIALS_DIRECTORY":
            assert variable["value"] == "/run/secrets/touchline"
            environment["CREDENTIALS_DIRECTORY"] = str(credentials)
        else:
            environment[variable["name"]] = variable.get("value") or secrets.get(variable["name"], "g" * 40)
    ended = subprocess.run([BINARY, "check", file], env=environment, capture_output=True, text=True)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0 and "error:" not in said, said
    warnings = [line for line in said.splitlines() if line.startswith("warning:")]
    # The variables of one case contain no API key, which is the one allowed warning.
    assert not [line for line in warnings if "http_api.key: missing" not in line], said


def test_the_values_of_the_guide_are_a_cluster(chart):
    page = (ROOT / "docs/guides/kubernetes.md").read_text()
    values = yaml.safe_load(re.search(r"```yaml\n(replicaCount.*?)```", page, re.DOTALL)[1])
    objects = render(chart, values)
    assert configuration(objects)["cluster"]["engine"] == "nats"
    assert {"Ingress", "ServiceMonitor"} <= {kind for kind, _ in objects}


def test_the_default_is_one_pod_that_is_replaced_without_a_gap(chart):
    [deployment] = kinds(render(chart, {}), "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_a_volume_is_never_of_two_pods(chart):
    objects = render(chart, VALUES["persistence"])
    [deployment] = kinds(objects, "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    [claim] = kinds(objects, "PersistentVolumeClaim")
    assert {"name": "data", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} in pod(objects)["volumes"]
    assert "cannot share the volume" in refusal(chart, {**VALUES["persistence"], "replicaCount": 2, "config": NATS})


def test_pods_go_one_by_one(chart):
    [budget] = kinds(render(chart, VALUES["cluster"]), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1 and "minAvailable" not in budget["spec"]
    [budget] = kinds(render(chart, VALUES["everything else"]), "PodDisruptionBudget")
    assert budget["spec"]["minAvailable"] == "50%" and "maxUnavailable" not in budget["spec"]
    assert not kinds(render(chart, {"podDisruptionBudget": {"enabled": False}}), "PodDisruptionBudget")


def annotations(objects: dict) -> dict:
    [deployment] = kinds(objects, "Deployment")
    return deployment["spec"]["template"]["metadata"]["annotations"]


def test_a_changed_configuration_replaces_the_pods(chart):
    secrets = {"secrets": {"apiKey": "one"}}
    first = annotations(render(chart, secrets))
    assert annotations(render(chart, secrets)) == first
    assert annotations(render(chart, {**secrets, "config": NEWS}))["checksum/config"] != first["checksum/config"]
    assert annotations(render(chart, {"secrets": {"apiKey": "two"}}))["checksum/secrets"] != first["checksum/secrets"]


def test_the_secret_has_the_keys_of_the_server(chart):
    [secret] = kinds(render(chart, VALUES["cluster"]), "Secret")
    assert sorted(secret["data"]) == ["client.token.hmac_secret_key", "cluster.nats_password", "http_api.key", "store.primary.url"]
    [made] = kinds(render(chart, {}), "Secret")
    assert sorted(made["data"]) == ["client.token.hmac_secret_key", "http_api.key"]
    assert all(len(base64.b64decode(value)) == 43 for value in made["data"].values())


def test_an_existing_secret_is_mounted_and_none_is_made(chart):
    objects = render(chart, VALUES["existing secret"])
    assert not kinds(objects, "Secret")
    assert {"name": "secrets", "secret": {"secretName": "mine", "defaultMode": 0o440}} in pod(objects)["volumes"]
    variables = {variable["name"]: variable["valueFrom"]["secretKeyRef"] for variable in container(objects)["env"] if "valueFrom" in variable}
    assert variables["TOUCHLINE_HTTP_API_KEY"] == {"name": "mine", "key": "apiKey", "optional": True}
    objects = render(chart, VALUES["secret variables"])
    assert not kinds(objects, "Secret") and [volume["name"] for volume in pod(objects)["volumes"]] == ["config", "data"]


def test_the_ingress_leads_to_the_clients_port(chart):
    objects = render(chart, VALUES["ingress"])
    outside, inside = objects["Ingress", "live-touchline"]["spec"], objects["Ingress", "live-touchline-internal"]["spec"]
    assert outside["ingressClassName"] == "nginx" and outside["tls"] == HOSTS["tls"]
    for spec, port in ((outside, "clients"), (inside, "internal")):
        [rule] = spec["rules"]
        [path] = rule["http"]["paths"]
        assert (rule["host"], path["path"], path["pathType"]) == ("live.example.com", "/", "Prefix")
        assert path["backend"]["service"] == {"name": "live-touchline", "port": {"name": port}}


def test_prometheus_finds_the_metrics(chart):
    objects = render(chart, VALUES["monitor"])
    [monitor] = kinds(objects, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [endpoint] = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["scheme"], endpoint["interval"]) == ("internal", "/metrics", "http", "15s")
    service = objects["Service", "live-touchline"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert "internal" in [port["name"] for port in service["spec"]["ports"]]
    assert configuration(objects)["prometheus"] == {"enabled": True}
    assert configuration(render(chart, VALUES["everything else"]))["prometheus"] == {"enabled": False}


def test_autoscaling_sets_the_number_of_pods(chart):
    objects = render(chart, VALUES["autoscaling"])
    [deployment], [scaler] = kinds(objects, "Deployment"), kinds(objects, "HorizontalPodAutoscaler")
    assert "replicas" not in deployment["spec"]
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 5)
    assert [metric["resource"]["name"] for metric in scaler["spec"]["metrics"]] == ["cpu", "memory"]


def test_constraints_select_the_pods_of_the_release(chart):
    [deployment] = kinds(render(chart, VALUES["cluster"]), "Deployment")
    [constraint] = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert constraint["labelSelector"] == deployment["spec"]["selector"]


def test_the_image_is_that_of_the_version(chart):
    assert container(render(chart, {}))["image"] == f"touchline:{VERSION}"
    objects = render(chart, VALUES["everything else"])
    assert container(objects)["image"] == f"registry.example.com/touchline:{VERSION}"
    assert pod(objects)["imagePullSecrets"] == [{"name": "other"}, {"name": "mine"}]


def test_helm_test_asks_the_internal_port(chart):
    [asking] = kinds(render(chart, {}), "Pod")
    assert asking["metadata"]["annotations"]["helm.sh/hook"] == "test"
    [found] = asking["spec"]["containers"]
    assert found["args"] == ["health", "--api", "http://live-touchline:9000"]
    [asking] = kinds(render(chart, VALUES["three services"]), "Pod")
    assert asking["spec"]["containers"][0]["args"][-1] == "http://live-touchline-internal:9000"


@pytest.mark.parametrize("values", [
    {"replicaCount": 2},
    {"replicaCount": 2, "config": {"cluster": {"name": "live"}}},
    {"autoscaling": {"enabled": True}},
])
def test_pods_that_would_serve_apart_are_refused(chart, values):
    assert "pods without a cluster would not share channels: set config.cluster.engine to \"nats\"" in refusal(chart, values)


@pytest.mark.parametrize("config, path", [
    ({"http_api": {"key": "k"}}, "config.http_api.key"),
    ({"http_api": {"keys": [{"name": "a", "key": "k"}]}}, "config.http_api.keys[0].key"),
    ({"client": {"token": {"hmac_secret_key": "k"}}}, "config.client.token.hmac_secret_key"),
    ({"cluster": {"nats_password": "k"}}, "config.cluster.nats_password"),
    ({"cluster": {"nats_url": ["nats://user:password@nats:4222"]}}, "config.cluster.nats_url[0]"),
    ({"store": {"primary": {"url": "postgres://user:password@host/database"}}}, "config.store.primary.url"),
    ({"http_server": {"tls": {"key_pem": "-----BEGIN PRIVATE KEY-----"}}}, "config.http_server.tls.key_pem"),
    ({"events": [{"secret": "whsec_AAAA"}]}, "config.events[0].secret"),
    ({"consumers": [{"postgresql": {"dsn": "host=db password=k"}}]}, "config.consumers[0].postgresql.dsn"),
])
def test_a_secret_in_the_configuration_is_refused(chart, config, path):
    assert f"{path} is a secret, and config becomes a ConfigMap" in refusal(chart, {"config": config})


@pytest.mark.parametrize("config", [
    {"store": {"primary": {"url": "sqlite:data/primary.db"}}},
    {"store": {"primary": {"url_file": "/secrets/url"}}},
    {"http_server": {"tls": {"key_pem": "/tls/tls.key", "cert_pem": "/tls/tls.crt"}}},
    {"client": {"token": {"meta_from_claim": [{"key": "team", "value": "team"}]}}},
])
def test_what_is_no_secret_is_taken(chart, config):
    assert render(chart, {"config": config})


@pytest.mark.parametrize("timeout, seconds", [("1m30s", 105), ("500ms", 16), ("1.5h", 5415), (20, 35), (0.5, 16), ("1d", 86415)])
def test_the_grace_period_follows_the_drain(chart, timeout, seconds):
    assert pod(render(chart, {"config": {"shutdown": {"timeout": timeout}}}))["terminationGracePeriodSeconds"] == seconds


def test_a_grace_period_that_cuts_the_drain_off_is_refused(chart):
    assert "Kubernetes would kill pods while they drain" in refusal(chart, {"terminationGracePeriodSeconds": 30})
    assert "Kubernetes would kill pods while they drain" in refusal(chart, {"terminationGracePeriodSeconds": 60, "env": {"TOUCHLINE_SHUTDOWN_TIMEOUT": "60s"}})
    assert "is not a duration" in refusal(chart, {"config": {"shutdown": {"timeout": "soon"}}})


def test_a_configuration_that_the_probes_cannot_ask_is_refused(chart):
    assert "would leave the probes without an answer" in refusal(chart, {"config": {"health": {"enabled": False}}})
    assert "must be two ports" in refusal(chart, {"config": {"http_server": {"port": 9000}}})


@pytest.mark.parametrize("values", [
    {"replicaCount": "two"}, {"replicas": 2}, {"image": {"tags": "1"}}, {"image": {"pullPolicy": "Sometimes"}}, {"service": {"port": 80000}},
    {"config": "text"}, {"secrets": {"key": "k"}}, {"secrets": {"apiKey": 1}}, {"envSecret": [{"name": "A"}]}, {"env": {"not a name": "1"}},
    {"ingress": {"hosts": ["live.example.com"]}}, {"podDisruptionBudget": {"maxUnavailable": "half"}}, {"terminationGracePeriodSeconds": "45s"}, {"readinessProbe": {"path": "/"}},
])
def test_bad_values_are_refused_by_the_schema(chart, values):
    assert "values don't meet the specifications of the schema" in refusal(chart, values)


def test_the_schema_has_every_value():
    """The schema has all values, and it is a valid schema."""
    schema = json.loads((ROOT / "packaging/helm/touchline/values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    values = yaml.safe_load((ROOT / "packaging/helm/touchline/values.yaml").read_text())
    assert set(values) | {"global"} == set(schema["properties"])


def test_the_chart_is_of_the_version_of_the_server():
    """The version is right in the folder too, not only in the packed chart."""
    chart = yaml.safe_load((ROOT / "packaging/helm/touchline/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == VERSION
