"""Numbers of the service for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from perfsuite.judge.service import Service
from perfsuite.judge.stored import State, Stored

_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics:
    """Counts what happens in one service."""

    def __init__(self, service: Service) -> None:
        disable_created_metrics()  # a second series of each counter, which has nothing but its time of birth
        self.registry = CollectorRegistry()
        self.requests = Counter("perfsuite_requests", "Answered requests.", ["status"], registry=self.registry)
        self._verdicts = Counter("perfsuite_verdicts", "Verdicts.", ["verdict", "reason"], registry=self.registry)
        self._stages = self._times("perfsuite_stage_seconds", "Host seconds of a job's stage.", "stage")
        self._waits = self._times("perfsuite_wait_seconds", "Seconds from a job's submission to its last start.")
        self.registry.register(_Depth(service))
        service.queue.listen(self._ended)

    def _times(self, name: str, told: str, *labels: str) -> Histogram:
        return Histogram(name, told, labels, registry=self.registry, buckets=_BUCKETS)

    def _ended(self, client: str, stored: Stored) -> None:
        if stored.state is not State.DONE or stored.answer is None:
            return
        self._verdicts.labels(stored.answer["verdict"], stored.answer["reason"]).inc()
        for stage, seconds in stored.answer.get("seconds", {}).items():
            self._stages.labels(stage).observe(seconds)
        if stored.began is not None:
            self._waits.observe(max(0.0, stored.began - stored.made))


class _Depth(Collector):
    """Reads the queue and the pool when Prometheus asks."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Any]:
        """The gauges, and the starts of processes that had ended."""
        found = self._service.depth()
        jobs = GaugeMetricFamily("perfsuite_jobs", "Jobs without an answer.", labels=["state"])
        for state in (State.QUEUED, State.RUNNING):
            jobs.add_metric([state], found[state])
        yield jobs
        yield GaugeMetricFamily("perfsuite_workers", "Processes that judge.", value=found["workers"])
        restarts = "Starts of a judging process after its end."
        yield CounterMetricFamily("perfsuite_worker_restarts", restarts, value=found["restarts"])
