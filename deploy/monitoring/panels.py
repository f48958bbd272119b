"""Panels, queries and variables, as dashboards of Grafana have them."""

SCHEMA_VERSION = 39
MATCHERS = ('cluster=~"$cluster", namespace=~"$namespace", job=~"$job", '
            'instance=~"$instance"')
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


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
