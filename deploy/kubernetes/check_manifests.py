#!/usr/bin/python3
"""What every built overlay must keep to, beyond the types of its fields.

    deploy/kubernetes/check_manifests.py FILE...      (from kubectl kustomize)
"""

import pathlib
import re
import sys

import yaml

SLACK = 10  # seconds of the grace period beyond the drain
GPU = re.compile(r"nvidia\.com/(gpu|mig-.*)")


class Overlay:
    def __init__(self, path):
        self.name = pathlib.Path(path).stem
        self.objects = [o for o in yaml.safe_load_all(open(path)) if o]
        self.deployment = self.one("Deployment")
        self.pod = self.deployment["spec"]["template"]["spec"]
        self.container = self.pod["containers"][0]

    def all(self, kind):
        return [o for o in self.objects if o["kind"] == kind]

    def one(self, kind):
        found = self.all(kind)
        assert len(found) == 1, f"{len(found)} objects of kind {kind}"
        return found[0]

    def flags(self):
        """Of gemmd.conf, as text."""
        wanted = {v["name"]: v for v in self.pod["volumes"]}["config"]
        config = {c["metadata"]["name"]: c for c in self.all("ConfigMap")}[
            wanted["configMap"]["name"]]
        return dict(re.findall(r"^([\w-]+) = (.*)$",
                               config["data"]["gemmd.conf"], re.M))


    def environment(self):
        return {v["name"]: v["value"] for v in self.container.get("env", [])}


def seconds(text):
    amount, unit = re.fullmatch(r"(\d+)(s|m)", text).groups()
    return int(amount) * {"s": 1, "m": 60}[unit]


def size(text):
    amount, unit = re.fullmatch(r"(\d+)(MiB|GiB)", text).groups()
    return int(amount) << {"MiB": 20, "GiB": 30}[unit]


def pod_security_restricted(o):
    labels = o.one("Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    context = o.pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["runAsGroup"] == 65532
    assert context["seccompProfile"]["type"] == "RuntimeDefault"
    context = o.container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert o.pod["automountServiceAccountToken"] is False
    assert o.pod["enableServiceLinks"] is False


# Elsewhere an autoscaler finds no Deployment, and a PodMonitor no pod.
def all_is_in_one_namespace(o):
    for x in o.objects:
        if x["kind"] not in ("Namespace", "PriorityClass"):
            where = x["metadata"].get("namespace")
            assert where == "gemmd", (x["kind"], x["metadata"]["name"], where)


def workload_has_the_common_labels(o):
    for labels in (o.deployment["metadata"]["labels"],
                   o.deployment["spec"]["template"]["metadata"]["labels"]):
        missing = {"name", "instance", "version", "component", "part-of",
                   "managed-by"} - {label.removeprefix("app.kubernetes.io/")
                                    for label in labels}
        assert not missing, missing


def rollout_needs_no_spare_device(o):
    strategy = o.deployment["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}
    spread = o.pod["topologySpreadConstraints"][0]
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"


def autoscalers_own_the_number_of_pods(o):
    scaled = o.all("HorizontalPodAutoscaler") + o.all("ScaledObject")
    assert len(scaled) <= 1
    assert ("replicas" in o.deployment["spec"]) == (not scaled)
    for scaler in scaled:
        target = scaler["spec"]["scaleTargetRef"]["name"]
        assert target == o.deployment["metadata"]["name"]


def grace_covers_the_drain(o):
    flags = o.flags()
    drain = seconds(flags["drain-delay"]) + seconds(flags["drain-timeout"])
    assert o.pod["terminationGracePeriodSeconds"] >= drain + SLACK
    # The pod must be seen as not ready before it refuses.
    probe = o.container["readinessProbe"]
    assert seconds(flags["drain-delay"]) >= probe["periodSeconds"]


def ports_are_those_that_gemmd_listens_on(o):
    flags = o.flags()
    ports = {p["name"]: p["containerPort"] for p in o.container["ports"]}
    assert flags["listen"].endswith(f":{ports['grpc']}")
    assert flags["http-listen"].endswith(f":{ports['metrics']}")
    for service in o.all("Service"):
        assert service["spec"]["selector"].items() <= (
            o.deployment["spec"]["template"]["metadata"]["labels"].items())
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in ports
    headless = [s for s in o.all("Service")
                if s["spec"].get("clusterIP") == "None"]
    assert len(headless) == 1


def probes_have_names_of_their_own(o):
    startup, live, ready = (o.container[p] for p in (
        "startupProbe", "livenessProbe", "readinessProbe"))
    if "GEMMD_TLS_CERT" in o.environment():  # which gRPC probes do not speak
        pages = [p["httpGet"] for p in (startup, live, ready)]
        assert [p["path"] for p in pages] == ["/readyz", "/livez", "/readyz"]
        assert all(p["port"] == "metrics" for p in pages)
        assert not any("grpc" in p for p in (startup, live, ready))
    else:
        assert live["grpc"]["service"] == "liveness"
        assert ready["grpc"]["service"] == "readiness"
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 60
    for probe in startup, live, ready:
        assert probe["timeoutSeconds"] > 1


# Either the port is TLS, with files that can be swapped in one step and no way
# back to plaintext, or nothing says that it is.
def tls_is_whole_or_absent(o):
    files = {name: value for name, value in o.environment().items()
             if name in ("GEMMD_TLS_CERT", "GEMMD_TLS_KEY",
                         "GEMMD_AUTH_TOKEN_FILE")}
    secrets = {v["name"] for v in o.pod["volumes"] if "secret" in v}
    folders = {m["mountPath"] for m in o.container["volumeMounts"]
               if m["name"] in secrets and "subPath" not in m}
    assert all(path.rsplit("/", 1)[0] in folders for path in files.values())
    tls = "GEMMD_TLS_CERT" in files
    assert ("GEMMD_TLS_KEY" in files) == tls
    assert (o.environment().get("GEMMD_INSECURE") == "false") == tls
    for service in o.all("Service"):
        protocol = service["spec"]["ports"][0]["appProtocol"]
        assert protocol == ("https" if tls else "kubernetes.io/h2c")


def resources_are_bounded(o):
    limits = o.container["resources"]["limits"]
    requests = o.container["resources"]["requests"]
    assert limits["memory"] == requests["memory"]
    assert "cpu" in requests and "cpu" not in limits
    gpus = [name for name in limits if GPU.fullmatch(name)]
    if o.name == "dev":
        assert not gpus
        return
    assert len(gpus) == 1 and limits[gpus[0]] == 1
    assert o.container["image"].endswith(":cuda")
    assert any(t["key"] == "nvidia.com/gpu" and t["operator"] == "Exists"
               for t in o.pod["tolerations"])


# Two messages must fit in the quarter of the memory that is for receiving, or
# gemmd does not start.
def two_messages_fit(o):
    most = size(o.environment().get("GEMMD_MAX_INLINE_BYTES", "256MiB"))
    assert 8 * most <= size(o.container["resources"]["limits"]["memory"] + "B")


def network_is_closed(o):
    policy = o.one("NetworkPolicy")["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert policy["egress"] == []
    assert all(rule["from"] for rule in policy["ingress"])


def one_pod_at_a_time_is_disrupted(o):
    spec = o.one("PodDisruptionBudget")["spec"]
    assert spec["maxUnavailable"] == 1
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


# Kinds that Kubernetes itself does not know must be known to whoever applies.
def foreign_kinds_are_announced(o):
    readme = (pathlib.Path(__file__).parent / "README.md").read_text()
    rows = dict(re.findall(r"^\| `([\w-]+)` \| .* \|(.*)\|$", readme, re.M))
    expected = rows[o.name].replace("the same", rows["gpu-operator"])
    for group in {x["apiVersion"].split("/")[0] for x in o.objects}:
        if "." in group and not group.endswith(".k8s.io"):
            assert f"`{group}`" in expected, group


RULES = [pod_security_restricted, all_is_in_one_namespace,
         workload_has_the_common_labels, rollout_needs_no_spare_device,
         autoscalers_own_the_number_of_pods, grace_covers_the_drain,
         ports_are_those_that_gemmd_listens_on, probes_have_names_of_their_own,
         tls_is_whole_or_absent, resources_are_bounded, two_messages_fit,
         network_is_closed, one_pod_at_a_time_is_disrupted,
         foreign_kinds_are_announced]


def main():
    problems = 0
    for path in sys.argv[1:]:
        overlay = Overlay(path)
        for rule in RULES:
            try:
                rule(overlay)
            except (AssertionError, KeyError) as error:
                line = error.__traceback__
                while line.tb_next:
                    line = line.tb_next
                print(f"{overlay.name}: {rule.__name__}, line {line.tb_lineno}:"
                      f" {error!r}")
                problems += 1
    count = len(RULES) * len(sys.argv[1:])
    print(f"{count - problems} of {count} good")
    return problems or not sys.argv[1:]


if __name__ == "__main__":
    sys.exit(main())
