"""Prometheus's own parsers read the metrics in both formats."""

import urllib.request

import pytest
from conftest import PATIENCE
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text_format


@pytest.mark.parametrize("accept, parse", [("*/*", text_format), ("application/openmetrics-text", openmetrics)], ids=["text", "openmetrics"])
def test_the_parser_of_prometheus_reads_the_metrics(server, accept, parse):
    server.api("publish", channel="news", data=1)
    request = urllib.request.Request(f"{server.http}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        families = list(parse(answer.read().decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "each family exists once"
    assert all(family.documentation for family in families), "each family has a description"
    histograms = [family for family in families if family.type == "histogram"]
    assert {family.name for family in histograms} == {"touchline_api_seconds", "touchline_delivery_seconds", "touchline_recovered_publications"}
    for family in histograms:
        of_label = lambda sample: sample.labels.get("method", "")
        counts = {of_label(sample): sample.value for sample in family.samples if sample.name.endswith("_count")}
        ends = {of_label(sample): sample.value for sample in family.samples if sample.labels.get("le") == "+Inf"}
        assert ends == counts
    api = next(family for family in histograms if family.name == "touchline_api_seconds")
    assert any(sample.labels.get("method") == "publish" and sample.value >= 1 for sample in api.samples)
    assert {"process_cpu_seconds", "process_resident_memory_bytes", "touchline_build_info"} <= {name.removesuffix("_total") for name in names}
