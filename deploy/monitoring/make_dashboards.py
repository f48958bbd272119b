#!/usr/bin/env python3
"""Writes dashboards/*.json: edit here, run, commit both.

    deploy/monitoring/make_dashboards.py [--check]

--check writes nothing and exits with 1 when a file is not what would be
written. In queries, <M> stands for the matchers of a server's series.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SCHEMA_VERSION = 39
MATCHERS = ('cluster=~"$cluster", namespace=~"$namespace", job=~"$job", '
            'instance=~"$instance"')
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
SGEMM = 'grpc_method="gemmd.v1.GemmService/Sgemm"'
SERVICE = 'grpc_method=~"gemmd.v1.GemmService/.+"'
# The statuses that the service answers for, as in rules/recording.yaml.
ERRORS = ('grpc_status=~"UNKNOWN|RESOURCE_EXHAUSTED|INTERNAL|UNAVAILABLE|'
          'DATA_LOSS"')
SLO_ERRORS = 0.001
GPU_NOTE = " GPUs only."


def query(expr, legend="", **more):
    return {"expr": expr.replace("<M>", MATCHERS), "legendFormat": legend,
            "datasource": DATASOURCE, **more}


def panel(kind, title, description, unit, width, height, targets, options,
          defaults=None, custom=None):
    for letter, target in zip("ABCDEFGH", targets):
        target["refId"] = letter
    return {
        "type": kind, "title": title, "description": description,
        "datasource": DATASOURCE, "targets": targets, "options": options,
        "gridPos": {"h": height, "w": width, "x": 0, "y": 0},
        "fieldConfig": {
            "defaults": {"unit": unit, **({"custom": custom} if custom else {}),
                         **(defaults or {})},
            "overrides": []},
    }


def thresholds(*steps):
    """steps: (from, colour); the first from None."""
    return {"thresholds": {"mode": "absolute", "steps": [
        {"value": value, "color": colour} for value, colour in steps]}}


def stat(title, description, unit, expr, defaults=None):
    return panel("stat", title, description, unit, 3, 4, [query(expr)],
                 {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "",
                                    "values": False},
                  "colorMode": "value", "graphMode": "area",
                  "justifyMode": "auto", "orientation": "auto",
                  "textMode": "auto"},
                 {"decimals": 2, **(defaults or {})})


def series(title, description, unit, *targets, stacked=False, width=8,
           defaults=None, line=False):
    custom = {"drawStyle": "line", "lineWidth": 1,
              "fillOpacity": 30 if stacked else 8, "showPoints": "never",
              "spanNulls": False}
    if stacked:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    if line:
        custom["thresholdsStyle"] = {"mode": "line"}
    return panel("timeseries", title, description, unit, width, 8,
                 list(targets),
                 {"legend": {"displayMode": "list", "placement": "bottom",
                             "showLegend": True, "calcs": []},
                  "tooltip": {"mode": "multi", "sort": "desc"}},
                 {"min": 0, **(defaults or {})}, custom)


def heatmap(title, description, unit, metric, matcher="", width=8):
    labels = "<M>" + (", " + matcher if matcher else "")
    expr = (f"sum by (le) (increase({metric}_bucket{{{labels}}}"
            "[$__rate_interval]))")
    return panel("heatmap", title, description, unit, width, 8,
                 [query(expr, "{{le}}", format="heatmap")],
                 {"calculate": False, "cellGap": 1,
                  "color": {"mode": "scheme", "scheme": "Oranges",
                            "exponent": 0.5, "fill": "dark-orange",
                            "reverse": False, "steps": 64},
                  "yAxis": {"unit": unit, "axisPlacement": "left",
                            "reverse": False},
                  "filterValues": {"le": 1e-9},
                  "rowsFrame": {"layout": "auto"},
                  "legend": {"show": True}, "exemplars": {"color": "red"},
                  "tooltip": {"mode": "single", "yHistogram": False,
                              "showColorScale": False}})


def table(title, description, expr, columns, width=12):
    hidden = {"Time": True, "Value": True, "__name__": True, "job": True,
              "cluster": True, "namespace": True}
    made = panel("table", title, description, "short", width, 6,
                 [query(expr, format="table", instant=True)],
                 {"showHeader": True, "cellHeight": "sm"})
    made["transformations"] = [{
        "id": "organize",
        "options": {"excludeByName": hidden, "renameByName": {},
                    "indexByName": {name: i for i, name in enumerate(
                        ["instance", *columns])}}}]
    return made


def rate(metric, matcher=""):
    labels = "<M>" + (", " + matcher if matcher else "")
    return f"rate({metric}{{{labels}}}[$__rate_interval])"


def quantile(q, metric, matcher="", by=()):
    labels = ", ".join(["le", *by])
    return (f"histogram_quantile({q}, sum by ({labels}) ("
            + rate(metric + "_bucket", matcher) + "))")


def mean(metric, by):
    return (f"sum by ({by}) ({rate(metric + '_sum')})"
            f" / (sum by ({by}) ({rate(metric + '_count')}) > 0)")


CALLS = "grpc_server_call_completed_total"
SECONDS = "grpc_server_call_duration_seconds"
STAGES = "gemmd_request_stage_duration_seconds"
ERROR_RATIO = (f"(sum({rate(CALLS, SERVICE + ', ' + ERRORS)}) or vector(0))"
               f" / sum({rate(CALLS, SERVICE)})")
PEAK_RATIO = (f"sum({rate('gemmd_flops_total')})"
              " / sum(gemmd_device_peak_flops{<M>})")


def service_rows():
    over_range = "[$__range]"
    budget = (f"clamp_min(1 - sum(increase({CALLS}{{<M>, {SERVICE}, {ERRORS}}}{over_range}))"
              f" / (sum(increase({CALLS}{{<M>, {SERVICE}}}{over_range}))"
              f" * {SLO_ERRORS}), -1)")
    yield "At a glance", [
        stat("Requests", "Calls of the service that ended, a second.", "reqps",
             f"sum({rate(CALLS, SERVICE)})"),
        stat("Errors", "Share of the calls that ended in a status that the "
             "service answers for; the objective is 0.1 %.", "percentunit",
             ERROR_RATIO, thresholds((None, "green"), (SLO_ERRORS, "red"))),
        stat("p99", "99 of 100 products are answered within this, from the "
             "call's arrival to its status.", "s",
             quantile(0.99, SECONDS, SGEMM)),
        stat("Achieved", "Floating-point operations a second (2mnk of the "
             "products done).", "flops", f"sum({rate('gemmd_flops_total')})"),
        stat("Of peak", "Achieved FLOP/s over what the devices' FP32 cores can "
             "do. Emulated FP32 on tensor cores can pass 100 %." + GPU_NOTE,
             "percentunit", PEAK_RATIO),
        stat("Queue", "Products that wait for a device.", "short",
             "sum(gemmd_queue_depth{<M>})", {"decimals": 0}),
        stat("Ready", "Servers that ask for requests.", "short",
             "sum(gemmd_ready{<M>})",
             {"decimals": 0, **thresholds((None, "red"), (1, "green"))}),
        stat("Error budget left", "Of the errors that 99.9 % allows over the "
             "time shown; below 0 it is spent, and cut at -100 %.", "percentunit", budget,
             thresholds((None, "red"), (0, "orange"), (0.25, "green"))),
    ]
    yield "Rate, errors, duration", [
        series("Calls by status", "How calls of the service ended.", "reqps",
               query(f"sum by (grpc_status) ({rate(CALLS, SERVICE)}) > 0",
                     "{{grpc_status}}"), stacked=True),
        series("Error ratio", "Calls that the service failed, over all; the "
               "line is the objective.", "percentunit",
               query(ERROR_RATIO, "errors"), line=True,
               defaults=thresholds((None, "green"), (SLO_ERRORS, "red"))),
        series("Latency", "From a call's arrival to its status; products "
               "only.", "s",
               *[query(quantile(q, SECONDS, SGEMM), f"p{q * 100:.0f}")
                 for q in (0.5, 0.95, 0.99)]),
        heatmap("Latency, all", "Products by how long they took.", "s",
                SECONDS, SGEMM, width=12),
        series("Calls by method", "Health checks left out.", "reqps",
               query(f"sum by (grpc_method) ({rate(CALLS, SERVICE)}) > 0",
                     "{{grpc_method}}"), width=12),
    ]
    yield "Batching and queue", [
        heatmap("Batch size", "Batches by how many products shared them.",
                "short", "gemmd_batch_size"),
        heatmap("Time in the queue", "Products by how long they waited for a "
                "device.", "s", STAGES, 'stage="queue"'),
        series("Queue depth", "Products that wait, and how many may before "
               "more are refused.", "short",
               query("sum by (instance) (gemmd_queue_depth{<M>})",
                     "waiting {{instance}}"),
               query("max(gemmd_queue_capacity{<M>})", "may wait, a server")),
        series("Shed", "Products refused or dropped before they ran, by why.",
               "reqps", query("sum by (reason) "
                              f"({rate('gemmd_requests_shed_total')})",
                              "{{reason}}"), stacked=True),
        series("Mean batch", "Products that shared a batch.", "short",
               query(mean("gemmd_batch_size", "kernel"), "{{kernel}}")),
        series("Why batches closed", "full: a limit; timer: --max-queue-delay; "
               "idle: a stream was free; drain: shutting down.", "ops",
               query(f"sum by (reason) ({rate('gemmd_batch_flush_total')})",
                     "{{reason}}"), stacked=True),
    ]
    yield "Where time goes", [
        series("Mean time by stage", "Of a product in the server: decode and "
               "copy, queue, to the device, compute, back, encode.", "s",
               query(mean(STAGES, "stage"), "{{stage}}"), stacked=True,
               width=12),
        series("p99 by stage", "99 of 100 products spend less in the stage.",
               "s", query(quantile(0.99, STAGES, by=["stage"]), "{{stage}}"),
               width=12),
    ]
    yield "Resident matrices", [
        series("Matrices", "Names that clients have for matrices on the "
               "devices.", "short",
               query("sum by (instance) (gemmd_matrices{<M>})",
                     "{{instance}}")),
        series("Store", "Device memory that matrices take, over what they may "
               "take.", "percentunit",
               query("sum by (instance) (gemmd_matrix_store_bytes{<M>}) / (sum "
                     "by (instance) (gemmd_matrix_store_capacity_bytes{<M>}) "
                     "> 0)", "{{instance}}")),
        series("Matrices removed", "evicted: for room, so that clients must "
               "send them again; expired: --matrix-ttl.", "ops",
               query("sum by (reason) "
                     f"({rate('gemmd_matrices_removed_total')})",
                     "{{reason}}")),
    ]
    size = "grpc_server_call_{}_total_message_size_bytes"
    yield "Transport", [
        series("Bytes in and out", "Message bytes of all calls.", "Bps",
               query(f"sum({rate(size.format('rcvd') + '_sum')})", "in"),
               query(f"sum({rate(size.format('sent') + '_sum')})", "out")),
        heatmap("Request size", "Products by the bytes of their request.",
                "bytes", size.format("rcvd"), SGEMM),
        series("In progress", "Products between acceptance and answer.",
               "short", query("sum by (instance) "
                              "(gemmd_inflight_requests{<M>})",
                              "{{instance}}")),
    ]
    yield "Process", [
        series("CPU", "Cores in use.", "short",
               query(f"sum by (instance) ({rate('process_cpu_seconds_total')})",
                     "{{instance}}")),
        series("Memory", "Resident, staging memory included.", "bytes",
               query("sum by (instance) (process_resident_memory_bytes{<M>})",
                     "{{instance}}")),
        series("Memory of requests", "held: products, and answers that clients "
               "still read, of --queue-max-bytes; staging: of "
               "--pinned-pool-bytes.", "percentunit",
               query("sum by (instance) (gemmd_held_bytes{<M>}) / "
                     "sum by (instance) (gemmd_held_capacity_bytes{<M>})",
                     "held {{instance}}"),
               query("sum by (instance) (gemmd_staging_bytes{<M>}) / "
                     "sum by (instance) (gemmd_staging_capacity_bytes{<M>})",
                     "staging {{instance}}")),
        series("File descriptors", "Open, over those allowed.", "percentunit",
               query("sum by (instance) (process_open_fds{<M>}) / "
                     "sum by (instance) (process_max_fds{<M>})",
                     "{{instance}}"), width=12),
        series("Starts", "How often the process began anew in an hour.",
               "short", query("sum by (instance) "
                              "(changes(process_start_time_seconds{<M>}[1h]))",
                              "{{instance}}"), width=12),
        table("Versions", "What each server was built from.",
              "gemmd_build_info{<M>}", ["version", "revision", "cuda"], 24),
    ]


def gpu_rows():
    kernel = 'kernel=~"$kernel"'

    def by_kernel(metric):
        return f"sum by (kernel) ({rate(metric, kernel)})"

    flops, busy = by_kernel("gemmd_flops_total"), by_kernel(
        "gemmd_kernel_busy_seconds_total")
    yield "Kernels", [
        series("FLOP/s by kernel", "Done, over the time that passes.", "flops",
               query(f"{flops} > 0", "{{kernel}}"), stacked=True),
        series("Speed of a kernel", "Done, over the time in which the kernel "
               "ran.", "flops", query(f"{flops} / ({busy} > 0)",
                                      "{{kernel}}")),
        series("Speed over peak", "Speed of a kernel over the device's FP32 "
               "peak. Emulated FP32 on tensor cores can pass 100 %."
               + GPU_NOTE, "percentunit",
               query(f"{flops} / ({busy} > 0) / on () group_left () "
                     "max(gemmd_device_peak_flops{<M>})", "{{kernel}}")),
        series("Time in kernels", "Seconds of each second; streams overlap, so "
               "the sum can pass 100 %.", "percentunit",
               query(f"{busy} > 0", "{{kernel}}"), stacked=True),
        series("Launches", "A fused kernel takes a whole batch in one.", "ops",
               query(f"{by_kernel('gemmd_kernel_launches_total')} > 0",
                     "{{kernel}}")),
        heatmap("Problem size", "Products by their 2mnk.", "short",
                "gemmd_problem_flops"),
    ]
    gauge = "sum by (instance, device) (gemmd_{}{{<M>}})".format
    label = "{{instance}} {{device}}"
    yield "Devices", [
        table("Devices", "Those in use.", "gemmd_device_info{<M>}",
              ["device", "name", "uuid", "compute_capability"], 16),
        table("Driver", "NVIDIA's driver, and the newest CUDA it runs."
              + GPU_NOTE, "gemmd_driver_info{<M>}",
              ["driver_version", "cuda_version"], 8),
        series("Up", "0 once a device has failed; its server then drains and "
               "ends.", "short",
               query("min by (instance, device) (gemmd_device_up{<M>})",
                     label), width=6),
        series("Streams in use", "Batches that run, over those that can.",
               "percentunit",
               query(f"{gauge('streams_busy')} / {gauge('streams')}", label),
               width=6),
        series("Errors of devices", "sticky: the device is lost; memory, "
               "launch: a batch failed.", "short",
               query("sum by (class) (increase(gemmd_device_errors_total{<M>}"
                     "[$__rate_interval]))", "{{class}}"), width=6),
        series("XID errors", "Errors that the driver reported; the runbook "
               "tells what to do." + GPU_NOTE, "short",
               query("sum by (instance, device) (increase("
                     "gemmd_device_xid_errors_total{<M>}[$__rate_interval]))",
                     label), width=6),
        series("Copies", "Bytes to (h2d) and from (d2h) devices.", "Bps",
               query("sum by (direction) "
                     f"({rate('gemmd_transfer_bytes_total')})",
                     "{{direction}}")),
        series("Utilisation", "Share of the time in which some kernel ran."
               + GPU_NOTE, "percentunit",
               query(gauge("device_utilization_ratio"), label),
               defaults={"max": 1}),
        series("Memory", "Of the whole device, all its programs." + GPU_NOTE,
               "bytes", query("sum by (instance, device, state) "
                              "(gemmd_device_memory_bytes{<M>})",
                              label + " {{state}}"), stacked=True),
        series("Power", "Drawn by the device." + GPU_NOTE, "watt",
               query(gauge("device_power_watts"), label), width=6),
        series("Efficiency", "FLOP a joule, of the whole device." + GPU_NOTE,
               "short",
               query(f"sum by (instance) ({rate('gemmd_flops_total')}) / "
                     "sum by (instance) ("
                     f"{rate('gemmd_device_energy_joules_total')})",
                     "{{instance}}"), width=6),
        series("Clock", "Of the multiprocessors; below the boost clock under "
               "load means heat or a power limit." + GPU_NOTE, "hertz",
               query(gauge("device_sm_clock_hertz"), label), width=6),
        series("Temperature", "Of the GPU." + GPU_NOTE, "celsius",
               query(gauge("device_temperature_celsius"), label), width=6),
    ]


def variable(name, label, metric, all_value):
    return {"name": name, "label": label, "type": "query",
            "datasource": DATASOURCE, 
            "query": {"query": f"label_values({metric}, {name})",
                      "refId": name},
            "multi": True, "includeAll": True,
            "allValue": all_value, "refresh": 2, "sort": 1, "hide": 0,
            "current": {"text": ["All"], "value": ["$__all"],
                        "selected": True},
            "options": [], "regex": "", "skipUrlSync": False}


def variables(with_kernel):
    made = [{"name": "datasource", "label": "Data source",
             "type": "datasource", "query": "prometheus", "hide": 0,
             "includeAll": False, "multi": False, "options": [], "regex": "",
             "refresh": 1, "skipUrlSync": False,
             "current": {"text": "default", "value": "default",
                         "selected": False}}]
    # Outside of Kubernetes the first two have no value, hence ".*".
    made += [variable("cluster", "Cluster", "gemmd_build_info", ".*"),
             variable("namespace", "Namespace", "gemmd_build_info", ".*"),
             variable("job", "Job", "gemmd_build_info", ".+"),
             variable("instance", "Instance",
                      'gemmd_build_info{job=~"$job"}', ".+")]
    if with_kernel:
        made.append(variable("kernel", "Kernel",
                             'gemmd_flops_total{job=~"$job"}', ".+"))
    return made


def lay_out(rows):
    """Panels from left to right, row by row, with their numbers."""
    panels, y = [], 0
    for title, members in rows:
        panels.append({"type": "row", "title": title, "collapsed": False,
                       "panels": [],
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        y += 1
        x = height = 0
        for member in members:
            place = member["gridPos"]
            if x + place["w"] > 24:
                x, y, height = 0, y + height, 0
            place["x"], place["y"] = x, y
            x, height = x + place["w"], max(height, place["h"])
            panels.append(member)
        y += height
    for number, member in enumerate(panels, 1):
        member["id"] = number
    return panels


def dashboard(uid, title, description, rows, with_kernel=False):
    return {
        "uid": uid, "title": title, "description": description,
        "schemaVersion": SCHEMA_VERSION, "version": 1, "id": None,
        "editable": False, "graphTooltip": 1, "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"}, "timezone": "browser",
        "tags": ["gemmd"],
        "links": [{"type": "dashboards", "title": "gemmd", "tags": ["gemmd"],
                   "asDropdown": False, "keepTime": True, "includeVars": True,
                   "icon": "external link", "targetBlank": False,
                   "tooltip": "", "url": ""}],
        "annotations": {"list": []},
        "templating": {"list": variables(with_kernel)},
        "panels": lay_out(rows),
    }


def main():
    made = {
        "gemmd-service.json": dashboard(
            "gemmd-service", "gemmd / Service",
            "Whether clients are served well, and where the time goes.",
            service_rows()),
        "gemmd-gpu.json": dashboard(
            "gemmd-gpu", "gemmd / GPU and kernels",
            "What computes, how fast, and how the devices are.", gpu_rows(),
            with_kernel=True),
    }
    stale = []
    for name, board in made.items():
        text = json.dumps(board, indent=1) + "\n"
        path = HERE / "dashboards" / name
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
        else:
            path.write_text(text)
    if stale:
        print("not up to date: " + ", ".join(stale)
              + "; run deploy/monitoring/make_dashboards.py")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
