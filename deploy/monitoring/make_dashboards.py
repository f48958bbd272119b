#!/usr/bin/env python3
"""Writes dashboards/*.json: edit here, run, commit both.

    deploy/monitoring/make_dashboards.py [--check]

--check writes nothing and exits with 1 when a file is not what would be
written. In queries, <M> stands for the matchers of a server's series.
"""

import json
import pathlib
import sys

from panels import (dashboard, heatmap, mean, quantile, query, rate, series,
                    stat, table, thresholds)

HERE = pathlib.Path(__file__).resolve().parent
SGEMM = 'grpc_method="gemmd.v1.GemmService/Sgemm"'
SERVICE = 'grpc_method=~"gemmd.v1.GemmService/.+"'
# The statuses that the service answers for, as in rules/recording.yaml.
ERRORS = ('grpc_status=~"UNKNOWN|RESOURCE_EXHAUSTED|INTERNAL|UNAVAILABLE|'
          'DATA_LOSS"')
SLO_ERRORS = 0.001
GPU_NOTE = " GPUs only."
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
