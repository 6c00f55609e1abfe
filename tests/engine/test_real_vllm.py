"""The suites that the simulated engine passes, on a real vLLM."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.contract.engine_residency_suite import InferredResidencySuite
from tests.contract.engine_suite import NAMES, EngineSuite, EngineUnderTest
from tests.contract.vllm_api_suite import (
    AdaptersSuite,
    AnswersSuite,
    MetricsSuite,
    RefusalsSuite,
    StreamSuite,
)
from tests.contract.vllm_under_test import driver_under_test

from axiom_common.model.ids import EngineAdapter

pytestmark = pytest.mark.engine


class TestAnswers(AnswersSuite):
    pass


class TestStreams(StreamSuite):
    pass


class TestRefusals(RefusalsSuite):
    pass


class TestAdapters(AdaptersSuite):
    pass


class TestMetrics(MetricsSuite):
    pass


class TestInferredResidency(InferredResidencySuite):
    pass


class TestDriver(EngineSuite):
    @pytest.fixture(autouse=True)
    def _place(self, place: tuple[str, str]) -> None:
        self.url, self.adapters = place

    def path(self, name: EngineAdapter) -> str:
        return f"{self.adapters}/ad{NAMES.index(name)}"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[EngineUnderTest]:
        async with driver_under_test(self.url, base="tiny", path=self.path) as test:
            yield test
